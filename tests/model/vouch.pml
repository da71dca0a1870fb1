/*
 * Vouching (docs/vouching-rules.md): a node's heartbeat names a voucher, which may revoke the node long
 * before its lease is over. Do two nodes ever answer for one VIP at the same time? With CALM: does somebody answer in
 * the end, and how soon? What claim.pml says of claims and leases is taken from there, and kept as small as may be.
 *
 * What is in it
 *   - N nodes, each an agent (renews, names a voucher, un-names it, says that its kernel is bound, parts, claims, hands
 *     over, restarts, pauses between any two steps) and a kernel, which goes on without it: turns pings round, accepts
 *     grants, and answers while it has an entry and both fences lie ahead. Each has V VIPs of its own.
 *   - W vouchers for each node, which adopt a term that it names (late), ping, grant, decide, revoke, restart.
 *     The node where a voucher runs may lose its right at any time: its grants end, and others may see so from then on.
 *     With RING the voucher of a node runs on the next node, by whose fences it grants. N=2: two nodes vouch for each
 *     other.
 *   - x, any other node: revokes by silence, and by the chain; claims what is free, answers at once, gives back.
 *   - With QUIET neither x nor a voucher sees a renewal of a bound node that says nothing new, unless it reads. Both
 *     revoke by replacing the version that they saw or read last. x reads at any time, with CALM only when it has to; a
 *     voucher reads once it has decided: if it read before that, and nothing was renewed since, it finds the same.
 *   - A linearizable store. Every write to a heartbeat is a compare-and-swap. A request may be given up and be applied
 *     all the same, whenever it likes: one of the agent's and one of each voucher's, which outlives its restart.
 *   - Frames: any that was ever sent may arrive at any time, any number of times, or never. Nobody makes one up.
 *
 * What keeps it finite
 *   - Epochs and versions are flags "it is the store's", as in claim.pml.
 *   - Terms are numbers 1..T of each node. One that nobody refers to any more is used again: so T bounds how many are
 *     alive at the same time, in runs of any length.
 *   - A stamp is how many ticks of fence it would still give. Of all frames of a term only the newest stamp counts, and
 *     the oldest for binding.
 *   - Receiving a pong, noting the time, and sending the grant are one step: the fence goes by the stamp, so a grant
 *     that is sent late is one that arrives late. A pong may also be taken note of without a grant.
 *   - x acts late on what it saw at once; with QUIET, what says something new. A revocation that was sent by the
 *     version that is still the store's is one that is sent when it is applied; what is left of "sent" is what outlives
 *     the sender (rv).
 *   - x claims and answers in one step: no other node answers sooner, or longer. An agent claims with the renewal that
 *     confirms. Where there is no entry the fence is forgotten.
 *   - With RIGHTS, and so with RING, there are no claims. What is asserted is that no kernel has the right to answer
 *     once the epoch of its heartbeat is over. That is more: a third node may take the claim then.
 *   - TAME: a write is applied as soon as it is sent, and its answer comes in the end.
 *
 * Times in ticks: D lease, M margin; LONG and LONGM of a heartbeat that says "bound"; P and PM of one that parts;
 * LD (d) and LM (m) of the voucher's grants. STAND: ticks in a row that a node's clock may stand still, and then goes
 * for LD at least.
 * Faults: RESTART (of agents), WRESTART (of vouchers, or their node's right ends), STRAY, HANDOVER, ANEW (a new epoch
 * without need), LOSE (people delete the heartbeat). LETS_GO: the agent releases what it claimed in an epoch that is
 * over. PARTS: nodes part. CHAIN: x revokes whose voucher is over; SAY: a
 * heartbeat says "bound" without that.
 * Broken rules: NO_VFENCE NO_BOUND EARLY_V COUNT_FROM_PING GRANT_AFTER LATE_FENCE_V UNBIND_SENT UNBIND_UNKNOWN
 * RESTART_UNBINDS BIND_FIRST NO_REREAD BLIND_REVOKE REUSE_TERM CARRY_BOUND OLD_GRANTS OLD_REVOKES NO_TERM_CHECK
 * LATE_WRITE; TERM_FIRST (ANEW); of the long lease and the chain NO_CUT SHORT_WAIT CHAIN_UNBOUND SAYS_EARLY CHAIN_SOON
 * CHAIN_BLIND; NO_RIGHT, API_RIGHT, LOOKS_EARLY and REGRANT (RING); PART_SWAPS (PARTS); SETTLE_SHORT (LOSE);
 * LETS_EARLY (LETS_GO); of QUIET LEASE_SHOWN LEASE_BLIND; with CALM: KEEP_KTERM NO_UNBIND SLACK; of QUIET as well
 * DECIDED_UNREAD CHAIN_UNREAD UNSWEPT SWEPT_ONCE.
 * Allowed: CARRY_VF, BORN_BOUND, LONG_NAMED, LATE_WRITE with LATE_CAS.
 * SEEK_*: asserts that something is out of reach which has to be in reach, lest the proof be about nothing.
 */
#ifndef N
#define N 1
#endif
#ifndef V
#define V 1
#endif
#ifndef W
#define W 1
#endif
#ifndef T
#define T 2
#endif
#ifndef D
#define D 4
#endif
#ifndef M
#define M 0
#endif
#ifndef LONG
#define LONG D
#endif
#ifndef LONGM
#define LONGM M
#endif
#ifndef P
#define P D
#endif
#ifndef PM
#define PM M
#endif
#ifndef LD
#define LD 2
#endif
#ifndef LM
#define LM 0
#endif
#ifndef STAND
#define STAND 0
#endif
#ifdef RING
#define RIGHTS
#endif
#define K (LD - LM) /* ticks that a new stamp gives */
#define LONGEST (LONG > P -> LONG : P)

#define AT(n, v) ((n) * V + (v))
#define BY(n, w) ((n) * W + (w))
#define OF(n, t) ((n) * (T + 1) + (t))

#define RELEASED 0
#define MINE 1
#define VOID 2 /* by the node, and its epoch is not that of the heartbeat */
#define TAKEN 3 /* by x, which answers from then on */

#define NONE 0
#define SENT 1
#define APPLIED 2

/* What a heartbeat publishes. */
#define SHORT 0
#define BOUND 1  /* it says that the kernel is bound, and has the long lease */
#define PARTED 2
#define LEASE(what) (what == BOUND -> LONG : (what == PARTED -> P : D))
#define RIGHT_FOR(what) (what == BOUND -> LONG - LONGM : (what == PARTED -> P - PM : D - M))

/* ---- the store ---- */
byte hTerm[N]; /* the term that a heartbeat names; 0: no voucher */
byte hSays[N];
bool hCur[N];  /* its epoch is that of the agent, which is its kernel's */
bool gone[N];  /* it is missing */
byte claim[N * V];

/* How the epoch of a claim ended, for LOSE. */
#define IN_PLACE 0
#define DELETED 1 /* with the heartbeat, and there is none yet that says so */
#define REMADE 2  /* with the heartbeat, and there is another one */
byte ended[N * V], waited[N * V];
byte fate[N], fatedFor[N]; /* the same of the agent's epoch, if it is not the store's */

/* ---- an agent ---- */
bool fresh[N]; /* the version that it would write over is the store's; then aTerm is hTerm */
byte aTerm[N]; /* what its heartbeat names, or named, by a yes or by a read */
byte renewal[N], age[N], wrTerm[N], wrSays[N];
bool creates[N];
bool stray[N], strayNew[N], strayMine[N], strayCreates[N];
byte strayTerm[N], straySays[N];

/* ---- a kernel ---- */
bool entry[N * V];
byte fence[N];
byte kTerm[N];
bool bound[N];
byte vf[N]; /* ticks to the voucher's fence */

/* ---- vouchers ---- */
byte wt[N * W];        /* the term that it vouches for */
bool seenBound[N * W]; /* a pong of that term said so */
bool decided[N * W];   /* it grants nothing more in that term */
byte wq[N * W];        /* ticks since the newest pong came whose stamp it sent back; before the first: since adoption */
bool rv[N * W];        /* a revocation is on the way that outlived its sender */

/* ---- frames, by node and term ---- */
byte owner[N * (T + 1)]; /* the voucher whose present instance and epoch are named, from 1; 0: over */
byte ping[N * (T + 1)];  /* 0, 1: without a stamp, if any; 2 + k: with one that gives k more ticks */
byte pong[N * (T + 1)];  /* 0: none of use; k: the newest stamp gives k more ticks */
bool pongB[N * (T + 1)]; /* one of them said "bound" */

/* ---- x ---- */
byte silent[N];  /* ticks since it saw that a heartbeat changed */
bool over[N];    /* the voucher that it names is over: another epoch, or another instance */
byte overFor[N]; /* ticks since that could be read */
bool strayTomb[N];

#ifdef QUIET
bool missed[N];      /* x does not know the store's version, which is a renewal that says nothing new */
bool wMissed[N * W]; /* nor does the voucher */
#endif

#if STAND > 0
byte walked = LD, stood;
#endif

byte h, i, was, says, made; /* scratch */

/* ---- CALM: from some tick on nothing goes wrong any more, but for what the scenario says (one node, one VIP) ---- */
#ifdef CALM
byte calm;
bool due;
byte calmFor;
bool wasVouched, wasChained;
#define NW 1    /* the agent, the kernel, the voucher and the link work */
#define NO_W 2  /* the voucher is dead, or the link is cut */
#define NO_N 3  /* the node is dead */
#define NO_A 4  /* its agent is dead */
#define NO_AW 5 /* its agent and the voucher are dead */
#define NO_NW 6 /* the node is dead, and its voucher's node too, which others see by now */
#define FREELY (calm == 0)
#define A_WORKS (calm <= NO_W)
#define W_WORKS (calm != NO_W && calm < NO_AW)
#define LINK (calm != NO_W && calm != NO_N && calm < NO_AW)
#define X_WANTS (calm == 0 || calm >= NO_N)
#define RENEWS (calm == 0 || (A_WORKS && due))
#define SENDS due = false;
#ifdef NO_UNBIND
#define LAPSING(n) false
#else
/* What its agent sees: the fence of the voucher is not extended. */
#define LAPSING(n) (hTerm[n] != 0 && (calm == NO_W || (calm == NW && owner[OF(n, hTerm[n])] == 0)))
#endif
#define OF_USE(n, w) (calm == 0 || ping[OF(n, wt[BY(n, w)])] < pong[OF(n, wt[BY(n, w)])] + 2)
#define TURNS(n) (calm == 0 || pong[OF(n, kTerm[n])] < K)
#else
#define FREELY true
#define A_WORKS true
#define W_WORKS true
#define LINK true
#define X_WANTS true
#define RENEWS true
#define SENDS
#define LAPSING(n) false
#define OF_USE(n, w) true
#define TURNS(n) true
#endif

#ifdef NO_VFENCE
#define RIGHT(n) (fence[n] > 0)
#else
#define RIGHT(n) (fence[n] > 0 && (!bound[n] || vf[n] > 0))
#endif
#define ANSWERS(n, v) (entry[AT(n, v)] && RIGHT(n))
#define HAS_ENTRY(n) (entry[AT(n, 0)] || entry[AT(n, V - 1)])

#if defined(SEEK_EARLY)
#define SOUGHT(n) assert(!(claim[n] == TAKEN && entry[n] && fence[n] > 0 && bound[n] && vf[n] == 0));
#elif defined(SEEK_REBOUND)
bool wasEarly;
#define SOUGHT(n) \
	wasEarly = wasEarly || (claim[n] == TAKEN && entry[n] && fence[n] > 0); \
	assert(!(ANSWERS(n, 0) && bound[n] && wasEarly));
#elif defined(SEEK_LONG)
#define SOUGHT(n) assert(fence[n] <= D || !bound[n] || vf[n] == 0);
#elif defined(SEEK_PARTED)
#define SOUGHT(n) assert(fence[n] <= D);
#elif defined(SEEK_BOTH)
#define SOUGHT(n) assert(!(bound[0] && bound[N - 1] && RIGHT(0) && RIGHT(N - 1)));
#elif defined(SEEK_MISSED)
#define SOUGHT(n) assert(!(missed[n] && silent[n] >= LONG && ANSWERS(n, 0)));
#elif defined(SEEK_REMADE)
#define SOUGHT(n) assert(!(claim[n] == TAKEN && waited[n] > 0));
#else
#define SOUGHT(n)
#endif
#ifdef SEEK_RETRY
bool again;
#endif

inline check(n)
{
#ifdef RIGHTS
	assert(hCur[n] || !RIGHT(n));
#endif
	for (h : 0 .. V - 1) {
		assert(!(claim[AT(n, h)] == TAKEN && ANSWERS(n, h)))
	}
	h = 0;
	SOUGHT(n)
	skip
}

#if defined(CHAIN_BLIND) || defined(LEASE_BLIND)
#define BLIND
bool blind; /* a revocation by x is on the way, and names no version */
#endif
#ifdef LOOKS_EARLY
bool looked[N]; /* the voucher found that its own node may answer */
#endif
#ifdef LATE_WRITE
bool late; /* an agent before this one is about to write the kernel's term */
byte lateTerm, lateFrom;
#define LATE_REF(t) || lateTerm == t || lateFrom == t
#else
#define LATE_REF(t)
#endif
#define LIVES(n, t) (hTerm[n] == t || kTerm[n] == t || aTerm[n] == t || wrTerm[n] == t || strayTerm[n] == t LATE_REF(t))
#if defined(NO_REREAD) || defined(BLIND_REVOKE) || defined(CARRY_BOUND) || defined(NO_TERM_CHECK) || defined(REUSE_TERM)
#define REF(n, t) (LIVES(n, t) || wt[BY(n, 0)] == t || wt[BY(n, W - 1)] == t)
#else
#define REF(n, t) LIVES(n, t)
#endif
#if T == 1
#define HAS_FREE(n) (!REF(n, 1))
#define NEXT_FREE(n) 1
#elif T == 2
#define HAS_FREE(n) (!REF(n, 1) || !REF(n, 2))
#define NEXT_FREE(n) (!REF(n, 1) -> 1 : 2)
#else
#define HAS_FREE(n) (!REF(n, 1) || !REF(n, 2) || !REF(n, 3))
#define NEXT_FREE(n) (!REF(n, 1) -> 1 : (!REF(n, 2) -> 2 : 3))
#endif

#ifdef CARRY_BOUND
#define FORGETS(w)
#else
#define FORGETS(w) seenBound[w] = false;
#endif
#ifdef QUIET
#define SAW_ALL(w) wMissed[w] = false;
#else
#define SAW_ALL(w)
#endif
/* `w`: BY(node, voucher). */
inline noTerm(w) { wt[w] = 0; FORGETS(w) SAW_ALL(w) decided[w] = false; wq[w] = 0 }

#ifdef CARRY_VF
#define CARRIES 1
#else
#define CARRIES 0
#endif
#ifdef RIGHTS
#define FORGET_FENCE(n)
#else
#define FORGET_FENCE(n) fence[n] = (HAS_ENTRY(n) -> fence[n] : 0);
#endif
/* What nobody refers to is gone; what does not matter has one value. */
inline clean(n)
{
	for (i : 0 .. W - 1) {
		if
		:: wt[BY(n, i)] != 0 && !REF(n, wt[BY(n, i)]) -> noTerm(BY(n, i))
		:: else
		fi
	}
	for (i : 1 .. T) {
		if
		:: !REF(n, i) -> owner[OF(n, i)] = 0; ping[OF(n, i)] = 0; pong[OF(n, i)] = 0; pongB[OF(n, i)] = false
		:: else
		fi
	}
	i = 0;
	FORGET_FENCE(n)
	vf[n] = (bound[n] -> vf[n] : vf[n] * CARRIES)
}

/* ---- the node where a voucher runs ---- */

#ifdef RING
#define HOST(n) (((n) + 1) % N)
#define GUEST(n) (((n) + N - 1) % N)
#define HOST_IS_OVER(n) (!hCur[HOST(n)])
#if defined(NO_RIGHT)
#define HOST_MAY(n) true
#elif defined(API_RIGHT)
#define HOST_MAY(n) (fence[HOST(n)] > 0)
#elif defined(LOOKS_EARLY)
#define HOST_MAY(n) looked[n]
#else
#define HOST_MAY(n) RIGHT(HOST(n))
#endif
#else
#define HOST_IS_OVER(n) false
#define HOST_MAY(n) true
#endif

/* From now on others may read that what `w` vouches for is vouched for no more. */
inline seenOver(n, w)
{
#ifdef CHAIN
	if
	:: hTerm[n] != 0 && owner[OF(n, hTerm[n])] == w + 1 -> over[n] = true
	:: else
	fi;
#endif
	skip
}

/* The voucher is another one, by its instance or by its epoch. */
inline renamed(n, w)
{
	seenOver(n, w);
	noTerm(BY(n, w));
#if !defined(OLD_GRANTS) && !defined(OLD_REVOKES)
	for (i : 1 .. T) {
		if
		:: owner[OF(n, i)] == w + 1 -> owner[OF(n, i)] = 0; pong[OF(n, i)] = 0; pongB[OF(n, i)] = false
		:: else
		fi
	}
	i = 0;
#endif
	clean(n)
}

/* ---- writes to a heartbeat, as the store sees them ---- */

inline noRenewal(n) { renewal[n] = NONE; age[n] = 0; wrTerm[n] = 0; wrSays[n] = SHORT; creates[n] = false }
inline noStray(n)
{
	stray[n] = false;
	strayNew[n] = false;
	strayMine[n] = false;
	strayCreates[n] = false;
	strayTerm[n] = 0;
	straySays[n] = SHORT
}

/* There is another version: what would write over the one before is refused. */
inline changed(n)
{
	fresh[n] = false;
#ifndef BLIND_REVOKE
	for (i : 0 .. W - 1) {
		rv[BY(n, i)] = false
	}
	i = 0;
#endif
	if
	:: renewal[n] == SENT && !creates[n] -> noRenewal(n)
	:: else
	fi;
	if
	:: stray[n] && !strayCreates[n] -> noStray(n)
	:: else
	fi
}

inline epochChanged(n, how)
{
	fate[n] = (hCur[n] -> how : fate[n]);
	for (i : 0 .. V - 1) {
		if
		:: claim[AT(n, i)] == MINE -> claim[AT(n, i)] = VOID; ended[AT(n, i)] = how
		:: else
		fi
	}
	i = 0;
#ifdef RING
	seenOver(GUEST(n), 0);
#endif
	skip
}

/* It was missing. */
inline remade(n)
{
	if
	:: gone[n] ->
		gone[n] = false;
		fate[n] = (fate[n] == DELETED -> REMADE : fate[n]);
		for (i : 0 .. V - 1) {
			ended[AT(n, i)] = (ended[AT(n, i)] == DELETED -> REMADE : ended[AT(n, i)])
		}
		i = 0
	:: else
	fi
}

/* What x and the vouchers see of the version that is the store's now. */
inline shown(n, term, what)
{
#ifdef QUIET
	missed[n] = (what == BOUND && hSays[n] == BOUND && hTerm[n] == term);
	silent[n] = (missed[n] -> silent[n] : 0);
	for (i : 0 .. W - 1) {
		wMissed[BY(n, i)] = missed[n] && wt[BY(n, i)] == term
	}
	i = 0
#else
	silent[n] = 0
#endif
}

inline names(n, term, what)
{
	shown(n, term, what);
#ifdef CHAIN
	if
	:: hTerm[n] != term ->
		overFor[n] = 0;
		over[n] = (term != 0 && (owner[OF(n, term)] == 0 || HOST_IS_OVER(n)))
	:: else
	fi;
#endif
	hTerm[n] = term;
	hSays[n] = what
}

inline revoke(n)
{
	changed(n);
	epochChanged(n, IN_PLACE);
	remade(n);
	hCur[n] = false;
	names(n, 0, SHORT);
	clean(n);
#ifdef RIGHTS
	check(n)
#endif
}

/* ---- an agent ---- */

inline applied(n)
{
	was = wrTerm[n];
	says = wrSays[n];
	renewal[n] = APPLIED;
	changed(n);
	if
	:: !hCur[n] -> epochChanged(n, IN_PLACE)
	:: else
	fi;
	remade(n);
#ifdef SEEK_RETRY
	again = decided[0] && was == wt[0];
#endif
	hCur[n] = true;
	names(n, was, says);
	was = 0;
	says = 0;
	fresh[n] = true;
	strayMine[n] = false;
	clean(n)
}

/* A heartbeat that is to publish a shorter lease: the kernel's fence is cut first. */
#ifdef NO_CUT
#define CUT(n, what)
#else
#define CUT(n, what) fence[n] = (fence[n] > RIGHT_FOR(what) -> RIGHT_FOR(what) : fence[n]);
#endif

inline send(n, term, what)
{
	SENDS
	renewal[n] = SENT;
	age[n] = 0;
	wrTerm[n] = term;
	wrSays[n] = what;
	creates[n] = gone[n];
	CUT(n, wrSays[n])
#ifdef TAME
	applied(n)
#endif
	skip
}

#ifdef BIND_FIRST
#define BINDS_FIRST(n) if :: kTerm[n] == 0 -> kTerm[n] = wrTerm[n] :: else fi;
#else
#define BINDS_FIRST(n)
#endif
#if defined(SAYS_EARLY) || defined(LONG_NAMED)
#define SAYS_AT_FIRST BOUND
#else
#define SAYS_AT_FIRST SHORT
#endif
/* A term that never was. The voucher that it names may be over. */
inline sendNew(n, whose)
{
	was = NEXT_FREE(n);
	owner[OF(n, was)] = whose;
	send(n, was, SAYS_AT_FIRST);
	was = 0;
	BINDS_FIRST(n)
	skip
}

/* The kernel first. Who vouched with the epoch before never does again in the same terms. */
inline beginAnew(n)
{
	for (i : 0 .. V - 1) {
		entry[AT(n, i)] = false
	}
	i = 0;
	fence[n] = 0;
	strayMine[n] = false;
	fate[n] = IN_PLACE;
	fatedFor[n] = 0;
#if defined(RING) && !defined(REGRANT)
	renamed(GUEST(n), 0);
#endif
	skip
}

inline strayApplied(n)
{
	was = strayTerm[n];
	says = straySays[n];
	if
	:: strayNew[n] -> epochChanged(n, IN_PLACE); hCur[n] = strayMine[n]
	:: else
	fi;
	noStray(n);
	changed(n);
	remade(n);
	names(n, was, says);
	was = 0;
	says = 0;
	clean(n)
}

/* The fence counts from before the renewal was sent. */
inline yes(n)
{
	fence[n] = (RIGHT_FOR(wrSays[n]) > age[n] -> RIGHT_FOR(wrSays[n]) - age[n] : 0);
	aTerm[n] = wrTerm[n];
	noRenewal(n);
	clean(n);
	check(n)
}

/* `v` is claimed before, and this confirms it. */
inline yesToClaim(n, v)
{
	claim[AT(n, v)] = (hCur[n] -> MINE : VOID);
	ended[AT(n, v)] = fate[n];
	waited[AT(n, v)] = fatedFor[n];
	entry[AT(n, v)] = true;
	yes(n)
}
#define MAY_CLAIM(n, v) (!entry[AT(n, v)] && claim[AT(n, v)] != TAKEN)

#ifdef STRAY
#define KEEPS_STRAY(n) \
	stray[n] = true; strayNew[n] = !hCur[n]; strayMine[n] = !hCur[n]; strayCreates[n] = creates[n]; \
	strayTerm[n] = wrTerm[n]; straySays[n] = wrSays[n]
#define ROOM(n) (renewal[n] != SENT || !stray[n])
#else
#define KEEPS_STRAY(n) skip
#define ROOM(n) true
#endif
inline giveUp(n)
{
	if
	:: renewal[n] == SENT -> KEEPS_STRAY(n)
	:: else
	fi;
	noRenewal(n);
	fresh[n] = false;
	aTerm[n] = kTerm[n]; /* nothing is known, so the kernel's stays */
	clean(n)
}

#define READY(n) (renewal[n] == NONE && fresh[n])
#ifdef BIND_FIRST
#define UPDATES(n) (renewal[n] == NONE)
#else
#define UPDATES(n) true
#endif
#ifdef LATE_CAS
#define LATE_MAY(n) (kTerm[n] == lateFrom)
#else
#define LATE_MAY(n) true
#endif
#ifdef RESTART_UNBINDS
#define RESTARTS(n) bound[n] = false;
#else
#define RESTARTS(n)
#endif
#ifdef BORN_BOUND
#define BOUND_AT_ONCE(n) bound[n] = (kTerm[n] != 0);
#else
#define BOUND_AT_ONCE(n) bound[n] = false;
#endif
#ifdef LETS_EARLY
#define LETS(n) true
#else
#define LETS(n) (!entry[AT(n, 0)])
#endif
#ifdef KEEP_KTERM
#define REPLACES(n) (kTerm[n] == 0)
#else
#define REPLACES(n) true
#endif
/* What a renewal with the same term says. With the long lease and the chain, whether the kernel is bound in it. */
#if defined(SAYS_EARLY) || defined(LONG_NAMED)
#define SAYS(n) (aTerm[n] != 0 -> BOUND : SHORT)
#elif defined(CHAIN) || defined(SAY)
#define SAYS(n) (bound[n] && aTerm[n] == kTerm[n] -> BOUND : SHORT)
#else
#define SAYS(n) SHORT
#endif
proctype Agent(byte n)
{
	do
	/* A consistent read. If the epoch is another: begin anew. */
	:: d_step { A_WORKS && renewal[n] == NONE && !fresh[n] ->
		fresh[n] = true; aTerm[n] = hTerm[n];
		if
		:: !hCur[n] -> beginAnew(n)
		:: else
		fi;
		clean(n) }
	/* Renew, and name the same; a new epoch comes with a new term, or none. Un-name. Name another. */
	:: d_step { RENEWS && READY(n) && hCur[n] && !LAPSING(n) -> send(n, aTerm[n], SAYS(n)) }
	:: d_step { RENEWS && READY(n) && !hCur[n] -> send(n, 0, SHORT) }
	:: d_step { RENEWS && READY(n) && hCur[n] && aTerm[n] != 0 && (FREELY || LAPSING(n)) -> send(n, 0, SHORT) }
#ifdef UNBIND_SENT
	:: d_step { READY(n) && hCur[n] && aTerm[n] != 0 -> send(n, 0, SHORT); bound[n] = false; check(n) }
#endif
	:: d_step { FREELY && READY(n) && !gone[n] && HAS_FREE(n) && !HOST_IS_OVER(n) -> sendNew(n, 1) }
#if W > 1
	:: d_step { FREELY && READY(n) && !gone[n] && HAS_FREE(n) -> sendNew(n, 2) }
#endif
#ifdef WRESTART
	:: d_step { FREELY && READY(n) && !gone[n] && HAS_FREE(n) -> sendNew(n, 0) }
#endif
#ifdef REUSE_TERM
	:: d_step { READY(n) && wt[BY(n, 0)] != 0 && aTerm[n] == 0 -> send(n, wt[BY(n, 0)], SHORT) }
#endif
	/* It parts: un-named for certain, and the kernel un-bound. */
#ifdef PARTS
	:: d_step { FREELY && READY(n) && hCur[n] && aTerm[n] == 0 && kTerm[n] == 0 -> send(n, 0, PARTED) }
#ifdef PART_SWAPS
	:: d_step { READY(n) && hCur[n] && aTerm[n] != 0 -> send(n, 0, PARTED); bound[n] = false; check(n) }
#endif
#endif
#ifdef ANEW
	/* A new epoch without need. The term is another, too. */
	:: d_step { FREELY && READY(n) && hCur[n] && !stray[n] ->
		beginAnew(n); hCur[n] = false; silent[n] = 0; epochChanged(n, IN_PLACE); clean(n) }
	/* Then the kernel's term may go, whatever the heartbeat names. */
#ifdef TERM_FIRST
	:: d_step { FREELY && READY(n) && kTerm[n] != 0 ->
#else
	:: d_step { FREELY && READY(n) && !hCur[n] && kTerm[n] != 0 ->
#endif
		aTerm[n] = 0; kTerm[n] = 0; bound[n] = false; clean(n); check(n) }
#endif
	:: d_step { renewal[n] == SENT && creates[n] == gone[n] -> applied(n) }
#ifdef LOSE
	:: d_step { renewal[n] == SENT && creates[n] && !gone[n] -> noRenewal(n); clean(n) }
#endif
	:: d_step { renewal[n] == APPLIED && A_WORKS && (FREELY || entry[n] || claim[n] == TAKEN) -> yes(n) }
	/* The same, and with it the claim is confirmed that was made before. */
#ifndef RIGHTS
	:: d_step { renewal[n] == APPLIED && A_WORKS && MAY_CLAIM(n, 0) -> yesToClaim(n, 0) }
#endif
#if V > 1
	:: d_step { renewal[n] == APPLIED && A_WORKS && MAY_CLAIM(n, 1) -> yesToClaim(n, 1) }
#endif
#ifndef TAME
	:: d_step { FREELY && renewal[n] != NONE && ROOM(n) -> giveUp(n) }
#endif
#ifdef UNBIND_UNKNOWN
	:: d_step { FREELY && renewal[n] != NONE && ROOM(n) && wrTerm[n] == 0 -> giveUp(n); bound[n] = false; check(n) }
#endif
	:: d_step { FREELY && stray[n] && strayCreates[n] == gone[n] -> strayApplied(n) }
	/* The kernel gets the term that the heartbeat names, or named, for certain; it is not bound to it yet. */
	:: d_step { A_WORKS && UPDATES(n) && REPLACES(n) && kTerm[n] != aTerm[n] ->
		kTerm[n] = aTerm[n]; BOUND_AT_ONCE(n) clean(n); check(n) }
#ifdef RESTART
	:: d_step { FREELY && ROOM(n) -> giveUp(n); RESTARTS(n) check(n) }
#ifdef LATE_WRITE
	:: d_step { ROOM(n) && kTerm[n] != aTerm[n] && !late ->
		late = true; lateTerm = aTerm[n]; lateFrom = kTerm[n]; giveUp(n); check(n) }
	:: d_step { late && LATE_MAY(n) ->
		aTerm[n] = (!fresh[n] && aTerm[n] == kTerm[n] -> lateTerm : aTerm[n]);
		kTerm[n] = lateTerm; bound[n] = false; late = false; lateTerm = 0; lateFrom = 0; clean(n); check(n) }
	:: d_step { late && !LATE_MAY(n) -> late = false; lateTerm = 0; lateFrom = 0; clean(n) }
#endif
#endif
#ifdef HANDOVER
	:: d_step { FREELY && entry[AT(n, 0)] && claim[AT(n, 0)] == MINE ->
		entry[AT(n, 0)] = false; claim[AT(n, 0)] = RELEASED; clean(n) }
#endif
	/* What it claimed in an epoch that is over, and its kernel has nothing of. */
#ifdef LETS_GO
	:: d_step { FREELY && claim[AT(n, 0)] == VOID && LETS(n) ->
		claim[AT(n, 0)] = RELEASED; ended[AT(n, 0)] = IN_PLACE; waited[AT(n, 0)] = 0; clean(n) }
#endif
	od
}

/* ---- a kernel ---- */

#ifdef LATE_FENCE_V
#define GIVES(level) (K)
#else
#define GIVES(level) (level - 2)
#endif

inline accept(n, gives)
{
	bound[n] = true;
	vf[n] = (vf[n] > gives -> vf[n] : gives);
	check(n)
}

#define PINGED(n) ping[OF(n, kTerm[n])]
#define PONGED(n) pong[OF(n, kTerm[n])]
#define TOLD(n) pongB[OF(n, kTerm[n])]

proctype Kernel(byte n)
{
	do
	:: d_step { LINK && kTerm[n] != 0 && PINGED(n) > 0 && (PONGED(n) < K || (bound[n] && !TOLD(n))) && TURNS(n) ->
		PONGED(n) = K; TOLD(n) = TOLD(n) || bound[n] }
	:: d_step { LINK && kTerm[n] != 0 && PINGED(n) >= 2 && (!bound[n] || vf[n] < GIVES(PINGED(n))) ->
		accept(n, GIVES(PINGED(n))) }
	:: d_step { FREELY && kTerm[n] != 0 && PINGED(n) > 2 && !bound[n] -> accept(n, GIVES(2)) }
#ifdef NO_TERM_CHECK
	:: d_step { kTerm[n] != 0 && wt[BY(n, 0)] != 0 && ping[OF(n, wt[BY(n, 0)])] > 2 ->
		accept(n, GIVES(ping[OF(n, wt[BY(n, 0)])])) }
	:: d_step { kTerm[n] != 0 && wt[BY(n, W - 1)] != 0 && ping[OF(n, wt[BY(n, W - 1)])] > 2 ->
		accept(n, GIVES(ping[OF(n, wt[BY(n, W - 1)])])) }
#endif
	od
}

/* ---- a voucher ---- */

#ifdef EARLY_V
#define PATIENCE (LD - 1)
#else
#define PATIENCE LD
#endif
#ifdef GRANT_AFTER
#define GRANTS(w) true
#else
#define GRANTS(w) (!decided[w])
#endif
#ifdef NO_BOUND
#define BOUND_SEEN(w) true
#else
#define BOUND_SEEN(w) seenBound[w]
#endif
#ifdef COUNT_FROM_PING
#define SINCE(at) (K + 1 - pong[at])
#else
#define SINCE(at) 0
#endif
#ifdef OLD_REVOKES
#define SINCE_ADOPTED LD
#else
#define SINCE_ADOPTED 0
#endif
#ifdef NO_REREAD
#define NAMES(n, w) hCur[n]
#else
#define NAMES(n, w) (hTerm[n] == wt[w])
#endif
#ifdef SEEK_RETRY
#define RETRIES(n) assert(!again || entry[n] == false || fence[n] == 0);
#else
#define RETRIES(n)
#endif
#define ADOPTED(n, w) OF(n, wt[BY(n, w)])
#ifdef QUIET
#define HAS_LATEST(n, w) (!wMissed[BY(n, w)])
#else
#define HAS_LATEST(n, w) true
#endif

proctype Voucher(byte n; byte w)
{
	do
	/* It reads the heartbeat, and pings. */
	:: d_step { W_WORKS && hTerm[n] != 0 && owner[OF(n, hTerm[n])] == w + 1 && wt[BY(n, w)] != hTerm[n] ->
		noTerm(BY(n, w)); wt[BY(n, w)] = hTerm[n]; wq[BY(n, w)] = SINCE_ADOPTED;
		ping[ADOPTED(n, w)] = (ping[ADOPTED(n, w)] == 0 -> 1 : ping[ADOPTED(n, w)]); clean(n) }
#ifdef LOOKS_EARLY
	:: d_step { wt[BY(n, w)] != 0 && !looked[n] && RIGHT(HOST(n)) -> looked[n] = true }
#endif
	/* A pong, and a grant at once, while its own node may answer; a pong only. */
	:: d_step { LINK && wt[BY(n, w)] != 0 && GRANTS(BY(n, w)) && HOST_MAY(n) && pong[ADOPTED(n, w)] > 0 && OF_USE(n, w) ->
		seenBound[BY(n, w)] = seenBound[BY(n, w)] || pongB[ADOPTED(n, w)];
		made = pong[ADOPTED(n, w)] + 2;
		ping[ADOPTED(n, w)] = (ping[ADOPTED(n, w)] > made -> ping[ADOPTED(n, w)] : made);
		made = 0;
#ifdef LOOKS_EARLY
		looked[n] = false;
#endif
		wq[BY(n, w)] = SINCE(ADOPTED(n, w)) }
	:: d_step { LINK && wt[BY(n, w)] != 0 && pongB[ADOPTED(n, w)] && !seenBound[BY(n, w)] -> seenBound[BY(n, w)] = true }
	/* It decides, and from then on it grants nothing; then it revokes what still names it in this term. */
	:: d_step { W_WORKS && wt[BY(n, w)] != 0 && !decided[BY(n, w)] && BOUND_SEEN(BY(n, w)) && wq[BY(n, w)] >= PATIENCE ->
		decided[BY(n, w)] = true; wq[BY(n, w)] = 0 }
	:: d_step { W_WORKS && decided[BY(n, w)] && NAMES(n, BY(n, w)) && HAS_LATEST(n, w) -> RETRIES(n) revoke(n) }
#if defined(QUIET) && !defined(DECIDED_UNREAD)
	:: d_step { W_WORKS && decided[BY(n, w)] && wMissed[BY(n, w)] -> wMissed[BY(n, w)] = false }
#endif
#ifdef STRAY
	:: d_step { FREELY && decided[BY(n, w)] && hTerm[n] == wt[BY(n, w)] && HAS_LATEST(n, w) && !rv[BY(n, w)] ->
		rv[BY(n, w)] = true }
	:: d_step { FREELY && rv[BY(n, w)] -> rv[BY(n, w)] = false; revoke(n) }
#endif
#ifdef WRESTART
	:: d_step { FREELY && wt[BY(n, w)] != 0 -> renamed(n, w) }
#endif
	od
}

/* ---- anybody else ---- */

#ifdef SHORT_WAIT
#define PUBLISHED(n) D
#else
#define PUBLISHED(n) LEASE(hSays[n])
#endif
#ifdef SETTLE_SHORT
#define SETTLED D
#else
#define SETTLED LONGEST
#endif
#ifdef CHAIN_UNBOUND
#define SAID_BOUND(n) true
#else
#define SAID_BOUND(n) (hSays[n] == BOUND)
#endif
#ifdef CHAIN_SOON
#define CHAINED (LD - 1)
#else
#define CHAINED LD
#endif
#ifdef SEEK_CHAIN
#define SEEN_CHAIN(n) assert(!(entry[n] && fence[n] > 0 && bound[n]));
#else
#define SEEN_CHAIN(n)
#endif
#ifdef QUIET
#define KNOWN(n) (!missed[n])
#else
#define KNOWN(n) true
#endif
#ifdef LEASE_SHOWN
#define COUNTS_ANEW(n)
#else
#define COUNTS_ANEW(n) silent[n] = 0;
#endif
/* When x has to read: at the end of a lease, and once before that; when it may revoke by the chain. */
#if defined(UNSWEPT)
#define SWEEPS(n) false
#elif defined(SWEPT_ONCE)
#define SWEEPS(n) (silent[n] == PUBLISHED(n))
#else
#define SWEEPS(n) (silent[n] == PUBLISHED(n) / 2 || silent[n] == PUBLISHED(n))
#endif
#if defined(CHAIN) && !defined(CHAIN_UNREAD)
#define FOLLOWS(n) (over[n] && overFor[n] >= CHAINED)
#else
#define FOLLOWS(n) false
#endif
#define IS_VOID(n, v) (claim[AT(n, v)] == VOID && (ended[AT(n, v)] == IN_PLACE || waited[AT(n, v)] >= SETTLED))

inline take(n, v)
{
	claim[AT(n, v)] = TAKEN;
	check(n);
	ended[AT(n, v)] = IN_PLACE;
	waited[AT(n, v)] = 0
}

proctype X(byte n)
{
	do
	:: d_step { hCur[n] && silent[n] >= PUBLISHED(n) && KNOWN(n) && X_WANTS -> revoke(n) }
#ifdef LEASE_BLIND
	:: d_step { hCur[n] && silent[n] >= PUBLISHED(n) && KNOWN(n) && SAID_BOUND(n) -> blind = true }
#endif
#ifdef QUIET
	:: d_step { missed[n] && (FREELY || SWEEPS(n) || FOLLOWS(n)) -> missed[n] = false; COUNTS_ANEW(n) skip }
#endif
#ifdef CHAIN
	:: d_step { X_WANTS && over[n] && overFor[n] >= CHAINED && SAID_BOUND(n) && KNOWN(n) -> SEEN_CHAIN(n) revoke(n) }
#ifdef CHAIN_BLIND
	:: d_step { over[n] && overFor[n] >= CHAINED && SAID_BOUND(n) -> blind = true }
#endif
#endif
#ifdef BLIND
	:: d_step { blind -> blind = false; revoke(n) }
#endif
#ifdef LOSE
	/* It is created at once: what it was voids nothing until the new one has been there for the longest lease. */
	:: d_step { gone[n] -> revoke(n) }
#ifdef STRAY
	:: d_step { gone[n] && !strayTomb[n] -> strayTomb[n] = true }
	:: d_step { strayTomb[n] && gone[n] -> strayTomb[n] = false; revoke(n) }
#endif
#endif
#ifndef RIGHTS
	:: d_step { X_WANTS && (claim[AT(n, 0)] == RELEASED || IS_VOID(n, 0)) -> take(n, 0) }
	:: d_step { claim[AT(n, 0)] == TAKEN && (FREELY || !X_WANTS) -> claim[AT(n, 0)] = RELEASED }
#endif
#if V > 1
	:: d_step { X_WANTS && (claim[AT(n, 1)] == RELEASED || IS_VOID(n, 1)) -> take(n, 1) }
	:: d_step { claim[AT(n, 1)] == TAKEN && (FREELY || !X_WANTS) -> claim[AT(n, 1)] = RELEASED }
#endif
	od
}

#ifdef LOSE
proctype DeletesHeartbeat(byte n)
{
	do
	:: d_step { FREELY && !gone[n] ->
		changed(n); epochChanged(n, DELETED); hCur[n] = false; names(n, 0, SHORT); gone[n] = true; clean(n) }
	od
}
#endif

/* ---- time ---- */

inline nodeTick(n)
{
	fence[n] = (fence[n] > 0 -> fence[n] - 1 : 0);
	vf[n] = (vf[n] > 0 -> vf[n] - 1 : 0);
	age[n] = (renewal[n] != NONE && age[n] < RIGHT_FOR(wrSays[n]) -> age[n] + 1 : age[n]);
	for (i : 1 .. T) {
		ping[OF(n, i)] = (ping[OF(n, i)] > 2 -> ping[OF(n, i)] - 1 : ping[OF(n, i)]);
		pong[OF(n, i)] = (pong[OF(n, i)] > 0 -> pong[OF(n, i)] - 1 : 0)
	}
	i = 0
}

inline othersTick(n)
{
	silent[n] = silent[n] + (hCur[n] && silent[n] < PUBLISHED(n) -> 1 : 0);
	for (i : 0 .. W - 1) {
		wq[BY(n, i)] = wq[BY(n, i)] + (wt[BY(n, i)] != 0 && !decided[BY(n, i)] && wq[BY(n, i)] < LD -> 1 : 0)
	}
	i = 0;
#ifdef CHAIN
	overFor[n] = (over[n] && overFor[n] < LD -> overFor[n] + 1 : overFor[n]);
#endif
#ifdef LOSE
	for (i : 0 .. V - 1) {
		waited[AT(n, i)] = waited[AT(n, i)] + (ended[AT(n, i)] == REMADE && waited[AT(n, i)] < SETTLED -> 1 : 0)
	}
	i = 0;
	fatedFor[n] = fatedFor[n] + (fate[n] == REMADE && fatedFor[n] < SETTLED -> 1 : 0);
#endif
	skip
}

inline allTick()
{
	nodeTick(0);
	othersTick(0);
#if N > 1
	nodeTick(1);
	othersTick(1);
#endif
#if N > 2
	nodeTick(2);
	othersTick(2);
#endif
	skip
}

#ifdef CALM
/* What is late by then never comes. */
inline becomes(what)
{
	wasVouched = hTerm[0] != 0 && kTerm[0] == hTerm[0] && wt[0] == hTerm[0] && owner[OF(0, hTerm[0])] == 1 && seenBound[0];
	wasChained = hSays[0] == BOUND;
	calm = what;
	due = true;
	noStray(0);
	rv[0] = false;
	if
	:: what > NO_W -> noRenewal(0); fresh[0] = false; aTerm[0] = kTerm[0]
	:: else
	fi;
	if
	:: what == NO_W || what == NO_AW -> noTerm(0)
	:: what == NO_NW -> renamed(0, 0)
	:: else
	fi;
	if
	:: what == NO_N || what == NO_NW -> entry[0] = false; kTerm[0] = 0; aTerm[0] = 0; bound[0] = false
	:: else
	fi;
	clean(0)
}

/* Ticks until somebody answers, at most. */
#ifndef SLACK
#define SLACK 0
#endif
#ifdef CHAIN
#define BY_CHAIN (calm == NO_NW && wasChained)
#else
#define BY_CHAIN false
#endif
#ifdef QUIET
#define SWEPT (LONGEST + LONGEST / 2) /* of a renewal right after x has read */
#else
#define SWEPT LONGEST
#endif
#define SOON ((calm == NO_N && wasVouched) || BY_CHAIN -> LD - SLACK : (calm > NO_W -> SWEPT - SLACK : CALM - SLACK))
inline allIsWell() { assert(calmFor < SOON || (X_WANTS -> claim[0] == TAKEN : ANSWERS(0, 0))) }

inline calmTick()
{
	allIsWell();
	allTick();
	due = true;
	calmFor = (calmFor < SWEPT + 3 -> calmFor + 1 : calmFor)
}
#define CALMS(what) :: d_step { calm == 0 -> becomes(what) } goto calmed
#endif

proctype Clock()
{
	do
	:: d_step { FREELY ->
		allTick();
#if STAND > 0
		walked = (walked < LD -> walked + 1 : LD);
		stood = 0
#endif
	}
#if STAND > 0
	:: d_step { walked == LD || (stood > 0 && stood < STAND) -> othersTick(0); walked = 0; stood = stood + 1 }
#endif
#ifdef CALM
	CALMS(NW)
	CALMS(NO_W)
	CALMS(NO_N)
	CALMS(NO_A)
	CALMS(NO_AW)
	CALMS(NO_NW)
#endif
	od;
#ifdef CALM
calmed:
	do
	:: d_step { timeout -> calmTick() }
	od
#endif
}

init
{
	byte a, b;
	d_step {
		for (a : 0 .. N - 1) {
			hCur[a] = true;
			fresh[a] = true
		}
		a = 0
	}
	atomic {
		run Clock();
		for (a : 0 .. N - 1) {
			run Agent(a);
			run Kernel(a);
			for (b : 0 .. W - 1) {
				run Voucher(a, b)
			}
			run X(a);
#ifdef LOSE
			run DeletesHeartbeat(a)
#endif
		}
		a = 0;
		b = 0
	}
#ifdef SEEK_START
	assert(false)
#endif
}
