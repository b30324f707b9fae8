package kolumn;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/** Options as the user gave them: without the properties that a table of a catalog has beside them, and without the one for this jar. */
final class Given {
  private static final Set<String> PLACES = Set.of("path", "location");
  private static final String OPTION = "option.";
  private static final Pattern SECRETS =
      Pattern.compile(
          "(?<=://)[^/@\\s]+(?=@)|(?<=(?:secret|password|token|access_key|account_key|key_id|sas)[a-z_]{0,20}=)[^&\\s,\"\\]}]+",
          Pattern.CASE_INSENSITIVE);

  private Given() {}

  static Map<String, String> of(Map<String, String> all) {
    // Tables have their options by that prefix, among properties that are none.
    boolean isTable = all.keySet().stream().map(Given::lower).anyMatch(key -> key.equals("provider") || key.startsWith(OPTION));
    Map<String, String> found = new HashMap<>();
    all.forEach(
        (name, value) -> {
          String key = lower(name);
          if (isTable && key.startsWith(OPTION)) {
            putUnlessThere(found, name.substring(OPTION.length()), value);
          } else if (isTable && PLACES.contains(key)) {
            putUnlessThere(found, "path", value);
          } else if (!isTable) {
            found.keySet().removeIf(key::equalsIgnoreCase);
            found.put(name, value);
          }
        });
    found.keySet().removeIf("reader"::equalsIgnoreCase);
    return found;
  }

  /** A text for plans, the UI and DESCRIBE, without what URLs in it have of secrets. */
  static String withoutSecrets(String text) {
    return SECRETS.matcher(text).replaceAll("***");
  }

  private static void putUnlessThere(Map<String, String> found, String name, String value) {
    if (found.keySet().stream().noneMatch(name::equalsIgnoreCase)) {
      found.put(name, value);
    }
  }

  private static String lower(String name) {
    return name.toLowerCase(Locale.ROOT);
  }
}
