package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.interfaces.RSAPrivateKey;
import java.security.spec.MGF1ParameterSpec;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Cipher;
import javax.crypto.spec.OAEPParameterSpec;
import javax.crypto.spec.PSource;
import javax.crypto.spec.SecretKeySpec;

/**
 * Private keys of one store, and the data keys that they unwrap (RSA-OAEP with SHA3-512 for the hash and for MGF1).
 *
 * <p>No key material is in a message. One thread at a time.
 */
final class KeyRing {
  private static final int DATA_KEY_BYTES = 32;
  private static final String LOG = ".log";
  private static final int KEY_FILE_BYTES_MAX = 1 << 20;
  private static final OAEPParameterSpec OAEP =
      new OAEPParameterSpec("SHA3-512", "MGF1", new MGF1ParameterSpec("SHA3-512"), PSource.PSpecified.DEFAULT);

  private final Map<String, String> files;
  private Map<String, RSAPrivateKey> keys;
  private final Map<SegmentPlan, SecretKeySpec> dataKeys = new HashMap<>();

  KeyRing(StoreLocation location) {
    files = location.privateKeyFiles();
  }

  /**
   * The segment's data key, which is unwrapped once.
   *
   * @throws TierlogException EncryptionKeyError: the ring has no key of this id, or it does not open the data key;
   *     ConfigError: a key file cannot be read
   */
  SecretKeySpec dataKey(SegmentPlan segment) {
    SecretKeySpec known = dataKeys.get(segment);
    if (known == null) {
      known = new SecretKeySpec(unwrap(segment), "AES");
      // One segment after another: older ones are not asked for again.
      dataKeys.clear();
      dataKeys.put(segment, known);
    }
    return known;
  }

  private byte[] unwrap(SegmentPlan segment) {
    if (keys == null) {
      keys = readKeys();
    }
    String id = Texts.quoted(segment.keyId());
    RSAPrivateKey key = keys.get(segment.keyId());
    if (key == null) {
      String known =
          keys.isEmpty() ? "no encryption.key.pairs are configured" : "the ring has " + String.join(", ", keys.keySet());
      throw refused(segment, "no private key with id " + id + ": " + known, null);
    }
    byte[] dataKey;
    try {
      Cipher opener = Cipher.getInstance("RSA/ECB/OAEPPadding");
      opener.init(Cipher.DECRYPT_MODE, key, OAEP);
      dataKey = opener.doFinal(segment.wrappedKey());
    } catch (GeneralSecurityException cause) {
      String text = "the private key with id " + id + " does not open the data key: another key under the same id, or "
          + "a damaged manifest";
      throw refused(segment, text, cause);
    }
    if (dataKey.length != DATA_KEY_BYTES) {
      String text = "the data key under id %s has %d bytes, not %d";
      throw refused(segment, text.formatted(id, dataKey.length, DATA_KEY_BYTES), null);
    }
    return dataKey;
  }

  private static TierlogException refused(SegmentPlan segment, String text, Throwable cause) {
    return new TierlogException("EncryptionKeyError", described(segment) + ": " + text, cause);
  }

  /** The manifest, which holds the id and the wrapped key: who follows the message looks there. */
  private static String described(SegmentPlan segment) {
    String name = segment.name();
    return name.endsWith(LOG) ? name.substring(0, name.length() - LOG.length()) + ".rsm-manifest" : name;
  }

  private Map<String, RSAPrivateKey> readKeys() {
    Map<String, RSAPrivateKey> read = new TreeMap<>();
    for (Map.Entry<String, String> file : files.entrySet()) {
      String place = "encryption.key.pairs." + file.getKey() + ".private.key.file";
      read.put(file.getKey(), PrivateKeys.parse(content(file.getValue(), place), place));
    }
    return read;
  }

  private static byte[] content(String path, String place) {
    try {
      Path file = Path.of(path);
      if (Files.exists(file) && !Files.isRegularFile(file)) {
        throw new TierlogException("ConfigError", place + ": " + path + ": not a regular file");
      }
      if (Files.size(file) > KEY_FILE_BYTES_MAX) {
        String text = "%s: %s: %d bytes, more than the limit of %d";
        throw new TierlogException("ConfigError", text.formatted(place, path, Files.size(file), KEY_FILE_BYTES_MAX));
      }
      return Files.readAllBytes(file);
    } catch (NoSuchFileException gone) {
      throw new TierlogException("ConfigError", place + ": " + path + ": No such file or directory", gone);
    } catch (AccessDeniedException refused) {
      throw new TierlogException("ConfigError", place + ": " + path + ": Permission denied", refused);
    } catch (IOException cause) {
      throw new TierlogException("ConfigError", place + ": " + path + ": " + cause.getMessage(), cause);
    }
  }
}
