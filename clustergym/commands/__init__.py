"""The commands, a file each: read the arguments, call a package below, print."""
