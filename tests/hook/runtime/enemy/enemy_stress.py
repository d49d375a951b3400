import random, threading, time
def stress(number, h_shared, seconds, out):
    rng = random.Random(number)
    end = time.monotonic() + seconds
    loops = 0
    try:
        assert call('cuCtxSetCurrent', c_void_p(CONTEXT)) == 0
        size = rng.choice([2, 4, 66]) * MIB
        handle = create(size)
        assert handle > 0, handle
        own = reserve(size); alias = reserve(size); sh = reserve(4*MIB)
        tag = b'thread%d' % number
        first = True
        while time.monotonic() < end:
            assert map_at(own, size, handle) == 0
            assert grant(own, size) == 0
            if not first:
                got = read(own + size - 64, len(tag))
                assert got == tag, (got, tag)
            assert write(own + size - 64, tag) == 0; first = False
            if rng.random() < .5:
                assert map_at(alias, size, handle) == 0
                if rng.random() < .7:
                    assert grant(alias, size, READ) == 0
                    assert read(alias + size - 64, len(tag)) == tag
                if rng.random() < .5: assert unmap(own, size) == 0 and unmap(alias, size) == 0
                else: assert unmap(alias, size) == 0 and unmap(own, size) == 0
            else:
                assert unmap(own, size) == 0
            assert map_at(sh, 4*MIB, h_shared) == 0
            assert grant(sh, 4*MIB) == 0
            assert read(sh, 6) == b'shared'
            assert unmap(sh, 4*MIB) == 0
            loops += 1
        assert release(handle) == 0
    except BaseException as e:
        out.append((number, loops, repr(e)))
        raise
    out.append((number, loops, 'ok'))
