"""Patches of ansible-core and ansible-runner for forked runs: a separate module for each changed subject.

The server imports the module of a patch only if the patch can be used, and runs work without it if the import fails;
that is why small patches stay in separate modules. ``patches`` is the table of all patches.

A patch stays if leaving it out costs 3 ms of a run, or if a warm run would differ from a cold one without it. The
figures in the modules are CPU time of all processes of a run with ansible-core 2.19 on Python 3.11, measured on a busy
machine: medians of paired differences with one patch left out, for an unchanged object of each role in ``roles/``, then
the mean of the four. Without any of these patches a run takes 92 ms more; with them it takes 190 to 350 ms there.
"""
