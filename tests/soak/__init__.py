"""Six tenants, two small devices and one fault after the other: see __main__.py.

`taken_back/` has patches that take mends back, each of which a soak finds within 300 s. By hand:

    git apply tests/soak/taken_back/stream_asked_again.patch
    make soak SECONDS=300; git checkout hook jupyter_gpushare

| patch | what it takes back | what a soak finds |
|---|---|---|
| stream_asked_again | the window asks its own table about the stream of a ring | kernels_lost |
| thread_cancelled | a thread is not cancelled in the middle of the hook's work | overlaps |
| launch_held_for_good | a launch is held for a bounded time | overlaps |
| caller_gone_answered | a caller of http.sock that has gone is not answered | tracebacks |
| turn_ends_with_its_connection | a turn outlives its connection for a moment | overlaps |
"""
