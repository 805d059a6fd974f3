package io.tierlog.engine;

/**
 * An error of the reader, in the words of the Python path.
 *
 * <p>{@link #getMessage} is exactly what the Python exception of class {@link #kind} says.
 */
public class TierlogException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final String kind;

  /**
   * @param kind class of {@code tierlog.errors}, as {@code "StoreError"}
   * @param text its message
   */
  public TierlogException(String kind, String text) {
    this(kind, text, null);
  }

  public TierlogException(String kind, String text, Throwable cause) {
    super(text, cause);
    this.kind = kind;
  }

  /** Class of {@code tierlog.errors}. */
  public String kind() {
    return kind;
  }

  /** With the kind between class and message, as a Python traceback ends. */
  @Override
  public String toString() {
    return getClass().getName() + ": " + kind + ": " + getMessage();
  }
}
