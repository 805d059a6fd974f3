"""``tierlog cat``: from the options of a scan to lines of text, and the reasons why no line is printed."""
