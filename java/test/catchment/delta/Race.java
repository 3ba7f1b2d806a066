package catchment.delta;

import io.delta.storage.LogStore;
import java.nio.file.FileAlreadyExistsException;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * One of several processes that all write the same versions: {@code Race <class> <folder> <versions> <slot> [<key>=<value> …]}.
 *
 * <p>Says "ready", waits for a line with a time (ms since 1970), and tries version n that time plus n slots (µs) later, so
 * that all of them try it at once. Prints "<version> <body>" for each that it won.
 */
public final class Race {
    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        for (int index = 4; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            conf.set(setting[0], setting[1]);
        }
        LogStore store = (LogStore) Class.forName(arguments[0]).getConstructor(Configuration.class).newInstance(conf);
        int versions = Integer.parseInt(arguments[2]);
        long slot = Long.parseLong(arguments[3]);
        // Classes loaded and connections made, so that the first versions are raced for as well as the last ones.
        store.write(new Path(arguments[1], ".warm-" + UUID.randomUUID()), List.of("").iterator(), false, conf);
        System.out.println("ready");
        byte[] line = new byte[64];
        long start = Long.parseLong(new String(line, 0, System.in.read(line)).trim());
        long offset = System.nanoTime() / 1000 + (start - System.currentTimeMillis()) * 1000;
        StringBuilder won = new StringBuilder();
        for (int version = 0; version < versions; version++) {
            Path path = new Path(arguments[1], String.format("%020d.json", version));
            String body = UUID.randomUUID().toString();
            for (long left; (left = offset + version * slot - System.nanoTime() / 1000) > 0; ) {
                if (left > 500) {
                    LockSupport.parkNanos((left - 300) * 1000); // the processors are the server's too
                }
            }
            try {
                store.write(path, List.of(body, "x".repeat(2000)).iterator(), false, conf);
                won.append(version).append(' ').append(body).append('\n');
            } catch (FileAlreadyExistsException lost) {
                // so it is another's
            }
        }
        System.out.print(won);
    }
}
