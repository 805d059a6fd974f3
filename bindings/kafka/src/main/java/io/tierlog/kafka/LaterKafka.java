package io.tierlog.kafka;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** Names that Kafkas after 3.6 have. Where the broker's has them not, the older way is taken. */
final class LaterKafka {
  static final byte UNKNOWN = -1;

  private static final MethodHandle IS_TXN_IDX_EMPTY = findIsTxnIdxEmpty();
  private static final MethodHandle NEW_RETRIABLE = findNewRetriable();

  private LaterKafka() {}

  /** Whether the segment has no transaction index: 1 or 0, {@link #UNKNOWN} where Kafka does not say. */
  static byte isTxnIdxEmpty(RemoteLogSegmentMetadata metadata) {
    if (IS_TXN_IDX_EMPTY == null) {
      return UNKNOWN;
    }
    try {
      return (boolean) IS_TXN_IDX_EMPTY.invokeExact(metadata) ? (byte) 1 : 0;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  /** A RetriableRemoteStorageException where Kafka has it. */
  static RemoteStorageException retriable(String message, Throwable cause) {
    if (NEW_RETRIABLE == null) {
      return new RemoteStorageException(message, cause);
    }
    try {
      return (RemoteStorageException) NEW_RETRIABLE.invokeExact(message, cause);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static MethodHandle findIsTxnIdxEmpty() {
    try {
      return MethodHandles.publicLookup()
          .findVirtual(RemoteLogSegmentMetadata.class, "isTxnIdxEmpty", MethodType.methodType(boolean.class));
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }

  private static MethodHandle findNewRetriable() {
    try {
      Class<?> found =
          Class.forName(
              "org.apache.kafka.server.log.remote.storage.RetriableRemoteStorageException",
              true,
              RemoteStorageException.class.getClassLoader());
      return MethodHandles.publicLookup()
          .findConstructor(found, MethodType.methodType(void.class, String.class, Throwable.class))
          .asType(MethodType.methodType(RemoteStorageException.class, String.class, Throwable.class));
    } catch (ReflectiveOperationException e) {
      return null;
    }
  }
}
