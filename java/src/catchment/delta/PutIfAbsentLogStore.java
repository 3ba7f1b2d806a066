package catchment.delta;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.impl.PutObjectOptions;
import org.apache.hadoop.fs.store.audit.AuditSpan;
import software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration;
import software.amazon.awssdk.awscore.exception.AwsServiceException;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;

/**
 * Delta's log on S3, where of any number of processes exactly one writes each version.
 *
 * <p>Delta's own looks whether the object is there and then puts it. Here the service itself is asked to put it only if it
 * is not there ({@code If-None-Match: *}). Everything else (listing, reading, replacing) is Delta's.
 *
 * <p>An answer may be lost, and the client then repeats the put by itself and is told of its own first one. So whatever
 * goes wrong, what the object holds decides. Two commits of Delta are never the same bytes, since each carries an id of
 * its own (`txnId`); so to find one's own bytes is to have won.
 */
public final class PutIfAbsentLogStore extends S3SingleDriverLogStore {
    private static final int CONFLICT = 409; // another put of this object is under way: ask again
    private static final int TRIES = 10;

    public PutIfAbsentLogStore(Configuration conf) {
        super(conf);
    }

    /**
     * All lines or nothing. FileAlreadyExistsException if the object was there before.
     *
     * <p>Another IOException if it cannot be told, or if there is no such object afterwards.
     */
    @Override
    public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite) {
            super.write(path, lines, true, conf);
            return;
        }
        FileSystem found = path.getFileSystem(conf);
        if (!(found instanceof S3AFileSystem)) {
            throw new IOException(found.getClass().getName() + " serves " + path + ", and conditional puts need S3A;"
                    + " use an s3a:// address, or set spark.delta.logStore." + found.getScheme() + ".impl");
        }
        S3AFileSystem files = (S3AFileSystem) found;
        byte[] body = body(lines);
        try (AuditSpan span = files.createSpan("delta_commit", path.toString(), null)) {
            put(files, path, body);
        } catch (SdkException error) {
            settle(files, path, body, error);
        }
    }

    /** Puts it if it is not there. SdkException, with whatever the last try was told, if it is or nobody knows. */
    private static void put(S3AFileSystem files, Path path, byte[] body) throws IOException {
        S3Client client = files.getS3AInternals().getAmazonS3Client("conditional put of a Delta commit");
        // S3A's own factory, so that encryption, storage class and access rights are those of every other object.
        PutObjectRequest.Builder request = files.getRequestFactory()
                .newPutObjectRequestBuilder(files.pathToKey(path), PutObjectOptions.keepingDirs(), body.length, false);
        AwsRequestOverrideConfiguration.Builder options = request.overrideConfiguration() == null
                ? AwsRequestOverrideConfiguration.builder()
                : request.overrideConfiguration().toBuilder();
        // As a header: this version of the client has no method for it.
        request.overrideConfiguration(options.putHeader("If-None-Match", "*").build());
        for (int tried = 1; ; tried++) {
            try {
                client.putObject(request.build(), RequestBody.fromBytes(body));
                return;
            } catch (AwsServiceException error) {
                if (error.statusCode() != CONFLICT || tried == TRIES) {
                    throw error;
                }
                pause(tried);
            }
        }
    }

    /** Returns if the object is ours after all. */
    private static void settle(S3AFileSystem files, Path path, byte[] body, SdkException error) throws IOException {
        byte[] there;
        try (InputStream in = files.open(path)) {
            there = in.readAllBytes();
        } catch (FileNotFoundException absent) {
            throw new IOException("could not put " + path + ": " + error.getMessage(), error);
        } catch (IOException unknown) {
            error.addSuppressed(unknown);
            throw new IOException("cannot tell whether " + path + " was put: " + error.getMessage(), error);
        }
        if (!Arrays.equals(there, body)) {
            throw (IOException) new FileAlreadyExistsException(path.toString()).initCause(error);
        }
    }

    private static byte[] body(Iterator<String> lines) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        while (lines.hasNext()) {
            out.writeBytes(lines.next().getBytes(StandardCharsets.UTF_8));
            out.write('\n');
        }
        return out.toByteArray();
    }

    private static void pause(int tried) throws IOException {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextLong(20L << Math.min(tried, 6)) + 1);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw (IOException) new InterruptedIOException("interrupted while another put was under way").initCause(error);
        }
    }
}
