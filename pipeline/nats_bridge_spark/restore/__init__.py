"""Creates streams and consumers from captures, and gives them their messages back, under their own sequences."""
