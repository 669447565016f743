"""The commands, a file each: read the arguments, call a room below, print."""
