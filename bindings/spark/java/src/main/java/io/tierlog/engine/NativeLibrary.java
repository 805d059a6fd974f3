package io.tierlog.engine;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Loads the shared libraries that the jar carries.
 *
 * <p>A JVM loads a library file for one class loader only, and Spark makes one for each session with artifacts: so each
 * unpacks a file of its own, which goes as soon as it is loaded.
 *
 * <p>Thread safety: any number of threads.
 */
public final class NativeLibrary {
  /** System property: the folder to unpack to if no option names one; the default is {@code java.io.tmpdir}. */
  public static final String DIRECTORY_PROPERTY = "io.tierlog.nativeDirectory";

  private static final String FOLDER = "/io/tierlog/native/";
  private static boolean loaded;

  private NativeLibrary() {}

  /**
   * Loads the library of this package, once.
   *
   * @param directory to unpack to; null: by {@link #DIRECTORY_PROPERTY}
   * @throws TierlogException StoreError or ConfigError: it cannot be unpacked or loaded; says what to do
   */
  public static synchronized void load(String directory) {
    if (!loaded) {
      load(NativeLibrary.class, "libtierlog_jni.so", directory);
      loaded = true;
    }
  }

  /** Whether the jar carries this file. */
  public static boolean carries(String name) {
    return NativeLibrary.class.getResource(FOLDER + name) != null;
  }

  /**
   * Unpacks and loads a library of the jar for the class loader of this class. {@code loader} has the native methods.
   *
   * @throws TierlogException see {@link #load(String)}
   */
  public static void load(Class<?> loader, String name, String directory) {
    String folder = directory != null ? directory : System.getProperty(DIRECTORY_PROPERTY);
    Path place = Path.of(folder != null ? folder : System.getProperty("java.io.tmpdir"));
    Path file = unpack(loader, name, place);
    try {
      System.load(file.toAbsolutePath().toString());
    } catch (UnsatisfiedLinkError cause) {
      String text = "%s cannot be loaded from %s: %s; where that folder is mounted noexec, give another one by option "
          + "nativeDirectory or -D%s";
      throw new TierlogException(
          "ConfigError", text.formatted(name, place, cause.getMessage(), DIRECTORY_PROPERTY), cause);
    } finally {
      delete(file);
    }
  }

  private static Path unpack(Class<?> loader, String name, Path place) {
    Path file = null;
    try (InputStream content = loader.getResourceAsStream(FOLDER + name)) {
      if (content == null) {
        String text = "this jar carries no %s: build it with `make jar`, or read with option engine=python";
        throw new TierlogException("ConfigError", text.formatted(name));
      }
      file = Files.createTempFile(place, "tierlog-", "-" + name);
      Files.copy(content, file, StandardCopyOption.REPLACE_EXISTING);
      return file;
    } catch (IOException cause) {
      if (file != null) {
        delete(file);
      }
      String text = "%s cannot be unpacked to %s: %s; give another folder by option nativeDirectory or -D%s";
      throw new TierlogException("ConfigError", text.formatted(name, place, cause, DIRECTORY_PROPERTY), cause);
    }
  }

  private static void delete(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException cause) {
      file.toFile().deleteOnExit();
    }
  }
}
