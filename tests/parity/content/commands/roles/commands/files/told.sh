#!/bin/sh
echo "script with $1 in $(basename "$PWD")"
