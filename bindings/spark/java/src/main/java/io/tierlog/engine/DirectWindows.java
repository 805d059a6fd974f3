package io.tierlog.engine;

/**
 * Windows that the thread that wants them reads itself: of local files, where the bytes are decoded while they are in
 * its core's cache, and the system reads ahead.
 */
final class DirectWindows implements Windows {
  private final Stores stores;
  private final Pieces pieces;
  private final WindowLoader loader;

  DirectWindows(Stores stores, Pieces pieces, TaskMemory memory) {
    this.stores = stores;
    this.pieces = pieces;
    loader = new WindowLoader(stores, memory);
  }

  @Override
  public Window next(int number) {
    while (pieces.hasNext() && pieces.number() < number) {
      pieces.skip();
    }
    return pieces.hasNext() && pieces.number() == number ? loader.load(pieces.next()) : null;
  }

  @Override
  public void abort() {}

  @Override
  public void close() {
    loader.close();
    stores.close();
  }
}
