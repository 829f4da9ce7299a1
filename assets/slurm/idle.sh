#!/bin/sh
# The main process of a container in which tasks of prepare run before the ranks: waits until the container is removed. The shell that holds the
# container writes a file `beat` again and again. Without a change of it for two minutes that shell is dead, and the job with it.
R=${0%/*} seen='' quiet=0
trap 'exit 143' TERM INT
while [ "$quiet" -lt 60 ]; do
  beat=''
  { read -r beat <"$R/beat"; } 2>/dev/null
  if [ "$beat" = "$seen" ]; then quiet=$((quiet + 1)); else seen=$beat quiet=0; fi
  sleep 2 & wait $!
done
