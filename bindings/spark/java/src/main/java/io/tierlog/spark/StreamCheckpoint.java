package io.tierlog.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.tierlog.planner.PlannerException;
import io.tierlog.planner.ReadTopics;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateOpts;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.SparkSession;

/**
 * The files of a stream below {@code sources/N} of its checkpoint: where it began, as Spark's Kafka source writes that, and
 * what it has read of its topics, which that source does not look at.
 *
 * <p>Source: KafkaSourceInitialOffsetWriter, HDFSMetadataLog.
 */
final class StreamCheckpoint {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String VERSION = "v1\n";

  private final Path folder;

  /** Null: it has no such interface. */
  private final FileContext files;

  /** Where there is no FileContext: an object store, as a rule, which shows a file when it is closed. */
  private final FileSystem store;

  private ReadTopics kept = ReadTopics.NONE;

  /**
   * Reached as Spark reaches the rest of the checkpoint: by the settings of the query's session, and by the interface that
   * there is.
   *
   * @throws UncheckedIOException the file system is not there
   */
  StreamCheckpoint(String location) {
    this.folder = new Path(location);
    Configuration configuration = SparkSession.active().sessionState().newHadoopConf();
    try {
      FileContext found = context(configuration);
      this.files = found;
      this.store = found == null ? FileSystem.get(folder.toUri(), configuration) : null;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private FileContext context(Configuration configuration) {
    try {
      return FileContext.getFileContext(folder.toUri(), configuration);
    } catch (UnsupportedFileSystemException e) {
      return null;
    }
  }

  /**
   * The offsets with which the query began; null: it is a new one.
   *
   * @throws PlannerException the file is of something else
   */
  TierlogOffset initialOffset() {
    String text = read(initial());
    if (text == null) {
      return null;
    }
    String known = text.startsWith("\0") ? text.substring(1) : text; // as Spark 2.1 wants it
    if (!known.startsWith(VERSION)) {
      throw new PlannerException("ConfigError", initial() + " is not of version 1 of Spark's Kafka source");
    }
    return TierlogOffset.parse(known.substring(VERSION.length()));
  }

  /** Writes the offsets with which the query begins. */
  void begin(TierlogOffset offset) {
    write(initial(), "\0" + VERSION + offset.json());
  }

  /**
   * What the query has read.
   *
   * @throws PlannerException the file is of something else
   */
  ReadTopics known() {
    String text = read(topics());
    if (text == null) {
      return kept;
    }
    try {
      kept = JSON.readValue(text, ReadTopics.class);
    } catch (IOException e) {
      throw new PlannerException("ConfigError", topics() + " has no topics of a query: " + e.getMessage());
    }
    if (kept == null) {
      throw new PlannerException("ConfigError", topics() + " has no topics of a query: it is null");
    }
    return kept;
  }

  /** Writes what the query has read, if that is more than before. */
  void keep(ReadTopics known) {
    if (known.equals(kept)) {
      return;
    }
    try {
      write(topics(), JSON.writeValueAsString(known));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    kept = known;
  }

  private Path initial() {
    return new Path(folder, "0");
  }

  private Path topics() {
    return new Path(folder, "tierlog-topics");
  }

  /** The text of a file; null: it is not there. */
  private String read(Path path) {
    try (FSDataInputStream in = files == null ? store.open(path) : files.open(path)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (FileNotFoundException e) {
      return null;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Writes all of a file, or nothing. */
  private void write(Path path, String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    Path begun = new Path(folder, "." + path.getName() + "." + UUID.randomUUID() + ".tmp");
    try {
      if (files == null) {
        try (FSDataOutputStream out = store.create(path, true)) {
          out.write(bytes);
        }
        return;
      }
      try (FSDataOutputStream out =
          files.create(begun, EnumSet.of(CreateFlag.CREATE), CreateOpts.createParent())) {
        out.write(bytes);
      }
      files.rename(begun, path, Rename.OVERWRITE);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
