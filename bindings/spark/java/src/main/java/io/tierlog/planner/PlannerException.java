package io.tierlog.planner;

import java.util.Set;

/**
 * The reason why there is no listing or no plan, for the user. It never shows a value of {@code store.*} or {@code
 * rsm.*}.
 */
public final class PlannerException extends RuntimeException {
  private static final long serialVersionUID = 1L;
  private static final String OWN_KIND = "PlannerError";
  private static final Set<String> KINDS_OF_PLANNER =
      Set.of(OWN_KIND, "ImportError", "ModuleNotFoundError", "PlanProtocolError");

  private final String kind;

  /**
   * @param kind the class of {@code tierlog.errors} that the planner told
   * @param text its message
   */
  public PlannerException(String kind, String text) {
    this(kind, text, null);
  }

  private PlannerException(String kind, String text, Throwable cause) {
    super(text, cause);
    this.kind = kind;
  }

  /** The planner itself does not work: it is missing, died, or answers nonsense. */
  static PlannerException broken(String text, Throwable cause) {
    return new PlannerException(OWN_KIND, text, cause);
  }

  /** Class of {@code tierlog.errors}, or the planner's failure. */
  public String kind() {
    return kind;
  }

  /** Whether the planner itself failed. */
  public boolean blamesPlanner() {
    return KINDS_OF_PLANNER.contains(kind);
  }

  /** Whether the user's options are to blame: such an error belongs to {@code load()}. */
  public boolean blamesOptions() {
    return kind.equals("ConfigError");
  }
}
