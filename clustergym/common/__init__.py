"""What every package needs: errors of one line, reading and writing files, parameters, the terminal."""
