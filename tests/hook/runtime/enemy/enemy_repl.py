import sys, threading, queue, os, signal
sys.path.insert(0, ".")
if os.environ.get("ENEMY_PLAIN"):
    pass
words = {}
def worker(number, q):
    while True:
        code = q.get()
        try:
            try:
                value = eval(code, words)
            except SyntaxError:
                exec(code, words); value = None
        except BaseException as e:
            value = f"raised {type(e).__name__} {e}"
        sys.stdout.write(f"{number} = {value!r}\n"); sys.stdout.flush()
queues = {}
for n in range(1, 5):
    queues[n] = queue.Queue()
    threading.Thread(target=worker, args=(n, queues[n]), daemon=True).start()
for line in sys.stdin:
    n, code = line.rstrip("\n").split(" ", 1)
    n = int(n)
    if n == 0:
        try:
            try:
                value = eval(code, words)
            except SyntaxError:
                exec(code, words); value = None
        except BaseException as e:
            value = f"raised {type(e).__name__} {e}"
        sys.stdout.write(f"0 = {value!r}\n"); sys.stdout.flush()
    else:
        queues[n].put(code)
