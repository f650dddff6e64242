from tests.audit.test_mutations import *
from tests.audit.conftest import *
def test_x(written):
    from collections import Counter
    c=Counter(); rej=Counter(); un=Counter(); unrej=Counter(); by=Counter()
    for seed in range(1600):
        s=written.copy(); n,m=mutate(s,seed); 
        f=[x.id for x in judge(s.log).values() if x.verdict is Verdict.INVALID]
        if m:
            c[n]+=1
            if f: rej[n]+=1
            else: print("overlooked", seed, n)
        else:
            un[n]+=1; unrej[n]+= bool(f)
        by.update(f)
    print(c,rej,un,unrej,sum(c.values()),sum(rej.values())); print(by)
