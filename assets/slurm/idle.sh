#!/bin/sh
# The main process of a container in which tasks of prepare run before the ranks: waits until the container is removed.
while :; do sleep 3600 & wait $!; done
