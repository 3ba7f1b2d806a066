package catchment.delta;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.BufferedWriter;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log in a local directory, where of any number of processes exactly one writes each version.
 *
 * <p>Hadoop looks whether the name is free and then renames, and a rename replaces what came in between. Here the file is
 * written aside and gets its name by a hard link, which the kernel makes only if the name is free. So a version is there
 * whole or not at all, and a process that dies leaves at most a hidden file that Delta does not look at.
 */
public final class LinkLogStore extends HadoopFileSystemLogStore {
    public LinkLogStore(Configuration conf) {
        super(conf);
    }

    /** All lines or nothing, on the disk when it returns. FileAlreadyExistsException if the name was taken before. */
    @Override
    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration conf) throws IOException {
        java.nio.file.Path target = java.nio.file.Path.of(path.getFileSystem(conf).makeQualified(path).toUri().getPath());
        String name = target.getFileName().toString();
        java.nio.file.Path aside = target.resolveSibling("." + name + "." + UUID.randomUUID() + ".tmp");
        if (!overwrite && Files.exists(target)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        try {
            store(lines, aside);
            // A checksum that Hadoop kept of another file of this name; readers would take ours for damaged.
            Files.deleteIfExists(target.resolveSibling("." + name + ".crc"));
            if (overwrite) {
                Files.move(aside, target, StandardCopyOption.ATOMIC_MOVE);
            } else {
                link(aside, target);
            }
            sync(target.getParent());
        } catch (NoSuchFileException error) {
            throw (IOException) new FileNotFoundException("no such directory: " + path.getParent()).initCause(error);
        } finally {
            Files.deleteIfExists(aside);
        }
    }

    /** True: checkpoints are written by others, straight to the name that they are given. */
    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return true;
    }

    private static void store(Iterator<String> lines, java.nio.file.Path aside) throws IOException {
        try (FileChannel channel = FileChannel.open(aside, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            BufferedWriter out = new BufferedWriter(Channels.newWriter(channel, StandardCharsets.UTF_8));
            while (lines.hasNext()) {
                out.write(lines.next());
                out.write('\n');
            }
            out.flush();
            channel.force(true);
        }
    }

    private static void link(java.nio.file.Path aside, java.nio.file.Path target) throws IOException {
        try {
            Files.createLink(target, aside);
        } catch (FileAlreadyExistsException error) {
            // Over a network the answer to the link may be lost, and its repetition then finds our own.
            if (!Files.isSameFile(aside, target)) {
                throw error;
            }
        } catch (NoSuchFileException error) {
            throw error;
        } catch (FileSystemException | UnsupportedOperationException error) {
            throw new IOException(
                    "no hard link could be made for " + target + ", and without one two drivers could write one version;"
                            + " keep the lake on a file system that has hard links",
                    error);
        }
    }

    /** Puts the names of a directory on the disk. */
    private static void sync(java.nio.file.Path directory) throws IOException {
        try (FileChannel channel = FileChannel.open(directory, StandardOpenOption.READ)) {
            channel.force(true);
        }
    }
}
