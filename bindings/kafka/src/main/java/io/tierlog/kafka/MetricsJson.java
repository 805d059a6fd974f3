package io.tierlog.kafka;

import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Reads the one shape of JSON that a metrics response has: {@code {"name": {"attribute": number}}}. */
final class MetricsJson {
  private final String text;
  private int at;

  private MetricsJson(String text) {
    this.text = text;
  }

  /**
   * @throws IllegalArgumentException it has another shape
   */
  static Map<String, Map<String, Double>> read(byte[] json) {
    MetricsJson reader = new MetricsJson(new String(json, StandardCharsets.UTF_8));
    Map<String, Map<String, Double>> found = new LinkedHashMap<>();
    reader.members(
        name -> {
          Map<String, Double> attributes = new LinkedHashMap<>();
          reader.members(attribute -> attributes.put(attribute, reader.number()));
          found.put(name, attributes);
        });
    reader.space();
    if (reader.at != reader.text.length()) {
      throw reader.wrong();
    }
    return found;
  }

  private interface Member {
    void read(String name);
  }

  private void members(Member member) {
    expect('{');
    if (next() == '}') {
      at++;
      return;
    }
    while (true) {
      String name = string();
      expect(':');
      member.read(name);
      if (next() != ',') {
        break;
      }
      at++;
    }
    expect('}');
  }

  private String string() {
    expect('"');
    StringBuilder found = new StringBuilder();
    while (true) {
      char each = character();
      if (each == '"') {
        return found.toString();
      }
      found.append(each == '\\' ? escaped() : each);
    }
  }

  private char escaped() {
    char each = character();
    return switch (each) {
      case '"', '\\', '/' -> each;
      case 'b' -> '\b';
      case 'f' -> '\f';
      case 'n' -> '\n';
      case 'r' -> '\r';
      case 't' -> '\t';
      case 'u' -> {
        if (at + 4 > text.length()) {
          throw wrong();
        }
        at += 4;
        yield (char) Integer.parseInt(text.substring(at - 4, at), 16);
      }
      default -> throw wrong();
    };
  }

  /** Python's JSON has NaN and Infinity too. */
  private double number() {
    next();
    int start = at;
    while (at < text.length() && "+-.0123456789eENaInfity".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    return Double.parseDouble(text.substring(start, at));
  }

  private void expect(char wanted) {
    if (next() != wanted) {
      throw wrong();
    }
    at++;
  }

  private char next() {
    space();
    if (at == text.length()) {
      throw wrong();
    }
    return text.charAt(at);
  }

  private char character() {
    if (at == text.length()) {
      throw wrong();
    }
    return text.charAt(at++);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private IllegalArgumentException wrong() {
    return new IllegalArgumentException("metrics that are not as they should be, at character " + at);
  }
}
