package io.tierlog.plan;

import java.io.Serializable;

/**
 * One segment's log object and how it was stored.
 *
 * @param store index of its {@link StoreLocation}
 * @param topic name
 * @param partition number
 * @param label value of column {@code segment}
 * @param name of the object, for messages (a masked key prefix is masked)
 * @param key of the object below the store's URL, {@code /} between its parts
 * @param logPosition first byte of the log in the object
 * @param sizeBytes of the original log
 * @param compressed whether each chunk is a zstd frame
 * @param originalChunkSize bytes of a whole chunk before compression and encryption; 0: the log is stored as it is
 * @param keyId of the key pair; null: not encrypted
 * @param wrappedKey data key, RSA-OAEP (SHA3-512, MGF1 with SHA3-512); null: not encrypted
 * @param aad of AES-GCM; null: not encrypted
 * @param lastModifiedMs of the log object, ms since 1970 UTC: told when the object is gone
 * @param maxTimestampMs no record is later; {@link Long#MAX_VALUE}: not known
 */
public record SegmentPlan(
    int store,
    String topic,
    int partition,
    String label,
    String name,
    String key,
    long logPosition,
    long sizeBytes,
    boolean compressed,
    int originalChunkSize,
    String keyId,
    byte[] wrappedKey,
    byte[] aad,
    long lastModifiedMs,
    long maxTimestampMs)
    implements Serializable {

  public boolean encrypted() {
    return keyId != null;
  }

  public boolean transformed() {
    return originalChunkSize > 0;
  }
}
