package io.tierlog.spark;

import java.util.Locale;
import java.util.Optional;

/** The name that was probably meant: Python's {@code difflib}, so that both paths propose the same. */
final class NearestName {
  private static final double CUTOFF = 0.4;

  private NearestName() {}

  /** The name nearest to the wanted one, whatever its case; empty: none is near. */
  static Optional<String> among(String[] names, String wanted) {
    String word = wanted.toLowerCase(Locale.ROOT);
    String best = null;
    double bestRatio = CUTOFF;
    for (String name : names) {
      String candidate = name.toLowerCase(Locale.ROOT);
      double ratio = ratio(candidate, word);
      boolean later = best == null || candidate.compareTo(best.toLowerCase(Locale.ROOT)) > 0;
      if (ratio > bestRatio || ratio == bestRatio && later) {
        best = name;
        bestRatio = ratio;
      }
    }
    return Optional.ofNullable(best);
  }

  /** Ratcliff and Obershelp: twice the characters in matching blocks, of the characters of both. */
  static double ratio(String a, String b) {
    int total = a.length() + b.length();
    return total == 0 ? 1.0 : 2.0 * matching(a, b) / total;
  }

  private static int matching(String a, String b) {
    int size = 0;
    int atA = 0;
    int atB = 0;
    for (int i = 0; i < a.length(); i++) {
      for (int j = 0; j < b.length(); j++) {
        int length = 0;
        while (i + length < a.length() && j + length < b.length() && a.charAt(i + length) == b.charAt(j + length)) {
          length++;
        }
        if (length > size) {
          size = length;
          atA = i;
          atB = j;
        }
      }
    }
    if (size == 0) {
      return 0;
    }
    return size
        + matching(a.substring(0, atA), b.substring(0, atB))
        + matching(a.substring(atA + size), b.substring(atB + size));
  }
}
