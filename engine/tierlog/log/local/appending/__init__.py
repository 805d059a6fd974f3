"""What comes into a log, checked and assigned; nothing here touches a file."""
