package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Set;

/** A folder of this machine, by pread. One file is open at a time; reads are done where they are waited for. */
final class LocalLogStore implements LogStore {
  // Of Linux, as tierlog.runtime.machine.files maps them.
  private static final Set<Integer> NOT_FOUND = Set.of(2, 20, 36); // ENOENT, ENOTDIR, ENAMETOOLONG
  private static final Set<Integer> REFUSED = Set.of(1, 13); // EPERM, EACCES
  private static final Set<Integer> PASSING = Set.of(24, 23, 11, 4, 16, 116, 110); // EMFILE … ETIMEDOUT

  private final String root;
  private String path;
  private int file = -1;

  LocalLogStore(StoreLocation location) {
    String folder = location.url();
    while (folder.endsWith("/")) {
      folder = folder.substring(0, folder.length() - 1);
    }
    root = folder;
  }

  @Override
  public Fetch begin(SegmentPlan segment, long start, long end, long address) {
    return new Fetch() {
      @Override
      public long await() {
        return read(segment, start, end, address);
      }

      @Override
      public void close() {}
    };
  }

  private long read(SegmentPlan segment, long start, long end, long address) {
    open(segment.key());
    long found = Native.fileRead(file, start, address, end - start);
    if (found < 0) {
      throw error((int) -found, path);
    }
    return found;
  }

  @Override
  public void expect(SegmentPlan segment, long start, long end) {
    if (file >= 0 && start < end) {
      Native.fileExpect(file, start, end - start);
    }
  }

  /**
   * The descriptor of an object, this store's until another is opened.
   *
   * @throws TierlogException ObjectNotFoundError, StoreError and its kinds
   */
  int open(String key) {
    String wanted = checked(key);
    if (file >= 0 && wanted.equals(path)) {
      return file;
    }
    close();
    byte[] bytes = wanted.getBytes(StandardCharsets.UTF_8);
    int opened = Native.fileOpen(Arrays.copyOf(bytes, bytes.length + 1));
    if (opened == Native.NOT_REGULAR) {
      throw new TierlogException("StoreError", wanted + ": not a regular file");
    }
    if (opened < 0) {
      throw error(-opened, wanted);
    }
    file = opened;
    path = wanted;
    return file;
  }

  private String checked(String key) {
    if (key.isEmpty() || key.startsWith("/") || List.of(key.split("/")).contains("..") || key.indexOf('\0') >= 0) {
      throw new TierlogException("StoreError", Texts.quoted(key) + ": not a key");
    }
    return root + "/" + key;
  }

  private static TierlogException error(int errno, String path) {
    String kind =
        NOT_FOUND.contains(errno)
            ? "ObjectNotFoundError"
            : REFUSED.contains(errno)
                ? "StorePermissionError"
                : PASSING.contains(errno) ? "StoreUnavailableError" : "StoreError";
    return new TierlogException(kind, path + ": " + Native.errorText(errno));
  }

  @Override
  public void close() {
    if (file >= 0) {
      Native.fileClose(file);
      file = -1;
    }
  }
}
