package io.tierlog.engine;

/** Texts for messages, as the Python path writes them. */
final class Texts {
  /** The text in place of a masked prefix, as in {@code tierlog.runtime.stores.wrappers.passing_store}. */
  private static final String MASK = "<prefix>/";

  private static final long MINUTE_MS = 60_000;
  private static final long HOUR_MS = 60 * MINUTE_MS;
  private static final long DAY_MS = 24 * HOUR_MS;

  private Texts() {}

  /** A string as Python's {@code repr} has it, for printable characters. */
  static String quoted(String text) {
    char quote = text.indexOf('\'') >= 0 && text.indexOf('"') < 0 ? '"' : '\'';
    StringBuilder out = new StringBuilder().append(quote);
    for (char c : text.toCharArray()) {
      if (c == quote || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ' || c == 0x7f) {
        out.append("\\x%02x".formatted((int) c));
      } else {
        out.append(c);
      }
    }
    return out.append(quote).toString();
  }

  /**
   * A message of a store without the key's prefix, where the segment's name masks it ({@code key.prefix.mask}).
   *
   * @param name of the segment for messages, as {@code <prefix>/orders-…}
   * @param key of its object
   */
  static String masked(String message, String name, String key) {
    if (!name.startsWith(MASK) || !key.endsWith(name.substring(MASK.length()))) {
      return message;
    }
    String prefix = key.substring(0, key.length() - (name.length() - MASK.length()));
    return prefix.isEmpty() ? message : message.replace(prefix, MASK);
  }

  /** A span of time, to the hour or minute. */
  static String inWords(long ms) {
    long days = ms / DAY_MS;
    long hours = ms / HOUR_MS;
    long minutes = ms / MINUTE_MS;
    if (days > 0) {
      return days + " d " + hours % 24 + " h";
    }
    return hours > 0 ? hours + " h " + minutes % 60 + " min" : minutes + " min";
  }
}
