/*
 * The claim protocol (docs/protocol.md): do two nodes ever answer for one VIP at the same time? And with CALM: does the
 * node that is to have a VIP answer for it in the end?
 *
 * What is in it
 *   - A linearizable store: one heartbeat for each node, one claim for each VIP. Every write is a compare-and-swap on
 *     the version, but for the creation of what is missing.
 *   - Requests take any time. A sender may give one up at any moment, and it may be applied all the same, whenever it
 *     likes: a "stray" one, at most one heartbeat write for each node and one claim write for each node and VIP.
 *   - Watches are late; an agent pauses between any two steps, for ever if it likes, and restarts.
 *   - A kernel answers while an entry of the control's epoch is there and the fence lies ahead. It needs no agent.
 *   - Time is in ticks of each node's own boot clock. A tick is always possible: nobody is ever made to act.
 *
 * What keeps it finite
 *   - Versions and epochs are no numbers. Who holds one has a flag "it is the store's", and a write to the object takes
 *     the flag away. What can only be refused from then on is forgotten at once: its sender learns of it at any time.
 *   - A read and the write that follows it are one step: a write in between would have the second one refused.
 *   - What others know of a heartbeat is kept once, not for each of them: who saw a version first may do all that another
 *     may, and what comes of a revocation does not depend on who sent it.
 *   - A fence is forgotten where there is no entry, for every entry comes with a new one.
 *
 * N nodes, V VIPs, D lease, M margin, P and PM the same for a parting lease (0: nobody parts). SKIP: how many ticks a
 * clock may stand still while a lease runs, for each lease length begun (a hypervisor's pause, or a slow clock).
 * Faults, each a mask of nodes (1 the first, 2 the second, 4 the third, 3 or 7 all): RESTART, STRAY (heartbeat writes), STRAY_CLAIM,
 * HANDOVER, PARTS, ANEW (a new epoch without need), LOSE (people delete its heartbeat; for one VIP). DELETE: people
 * delete claims; UNINSTALL: and take those away, finalizer or not, of which no node has anything.
 * Broken rules: NO_EPOCH, NO_CONFIRM, NO_CAS, NO_CLAMP, FLAT_MARGIN, LATE_FENCE, BAD_RELEASE, BAD_LETGO, KEEP_OLD,
 * KEEP_REVOKED, ASK_EARLY, EARLY, TAKE_MISSING, CREATE_SOON and CREATE_AT_ONCE (a missing heartbeat, after D and 0),
 * NO_SETTLE (one that was made anew makes claims void at once), FORCED (UNINSTALL of what a node has).
 * NO_REVOCATION, and with CALM: NEVER_REVOKED, KEEPS_IDLE, NEVER_LET_GO, NEVER_RESTS.
 * CALM: so many ticks after all is calm every VIP has to be answered for. ENDLESS: with labels for `pan -l`.
 * A rule that arpguard does not have: SETTLE_LONGEST, what NO_SETTLE breaks waits for the longest lease and not for D.
 * SEEK_*: asserts that something is out of reach which has to be in reach, lest the proof be about nothing.
 *
 * symmetry.c goes by the declarations here: of each node [N], of each VIP [V], of both [N * V], and a NODE is a number.
 */
#ifndef N
#define N 2
#endif
#ifndef V
#define V 1
#endif
#ifndef D
#define D 2
#endif
#ifndef M
#define M 0
#endif
#ifndef P
#define P 0
#endif
#ifdef FLAT_MARGIN
#define PM M
#else
#define PM (M * P / D)
#endif
#ifndef SKIP
#define SKIP 0
#endif
#ifndef RESTART
#define RESTART 0
#endif
#ifndef STRAY
#define STRAY 0
#endif
#ifndef STRAY_CLAIM
#define STRAY_CLAIM 0
#endif
#ifndef HANDOVER
#define HANDOVER 0
#endif
#ifndef PARTS
#define PARTS EVERY
#endif
#ifndef ANEW
#define ANEW 0
#endif
#if P > D
#define LONGEST P
#else
#define LONGEST D
#endif
#define EVERY ((1 << N) - 1)
#define MAY(fault, n) ((fault >> n) & 1)
#define MAY_ANOTHER(fault, n) ((fault & ~(1 << n)) != 0)
#define AT(n, v) ((n) * V + (v))

#define NODE byte       /* the number of one */
#define RELEASED N      /* a claim's holder: nobody */
#define MISSING (N + 1) /* there is no claim */

/* ---- the store ---- */
bool tomb[N];     /* the heartbeat is a revoker's */
bool parted[N];   /* it publishes the parting lease */
bool gone[N];     /* it is missing */
NODE holder[V];   /* of the claim */
bool valid[V];    /* its epoch is its holder's */
bool deleting[V]; /* it was deleted, and the finalizer holds it */

/*
 * How a claim's epoch ended, for LOSE. A node is told of it late, or never, and that only makes it wait for longer: here
 * all see at once what they can see. So they have seen the epoch in the object in which it ended, unless that is gone.
 */
#define IN_PLACE 0
#define DELETED 1 /* with the heartbeat, and there is none yet that says so */
#define REMADE 2  /* with the heartbeat, and there is another one */
byte ended[V];
byte waited[V]; /* ticks since it was remade, on the clocks of others than the holder */

/* ---- an agent and its own heartbeat ---- */
bool current[N]; /* the epoch of the agent, which is its kernel's, is the store's */
bool held[N];    /* a renewal with it was answered with yes, to this agent or to one before */
bool fresh[N];   /* the version that it would write over is the store's */

#define NONE 0
#define SENT 1
#define APPLIED 2
byte renewal[N];
bool parting[N]; /* the renewal publishes the parting lease */
bool creates[N]; /* it creates what is missing */
byte age[N];     /* ticks since before it was sent */

bool stray[N]; /* a renewal that was given up */
bool strayParting[N];
bool strayNew[N];  /* it carries an epoch that the store never had */
bool strayMine[N]; /* and that is the agent's */
bool strayCreates[N];

/* ---- what others know of a node's heartbeat ---- */
bool seen[N];      /* the version that somebody saw is the store's */
byte quiet[N];     /* ticks since the first one did */
bool right[N];     /* NO_EPOCH: it was revoked */
bool strayTomb[N]; /* LOSE: a tombstone that was sent to where none was */

/* ---- a node and a claim ---- */
#define IDLE 0
#define TAKE 1
#define CREATE 2
#define RELEASE 3
#define LETGO 4 /* takes the finalizer off */
#define WON 5   /* applied */
#define CONFIRMING 6 /* the answer came, and a renewal was sent after that */
#define UNDER_WAY(what) (what >= TAKE && what <= LETGO)
byte op[N * V];
bool opCurrent[N * V]; /* the epoch that it carries is the store's */
bool opMine[N * V];    /* it is the agent's */
byte strayOp[N * V];
bool strayCurrent[N * V];

/* ---- a kernel ---- */
#define OWNED 1
#define STALE 2 /* the entry has an epoch that is not the control's */
byte entry[N * V];
byte fence[N];                /* ticks until it */
byte stood[N], stoodSince[N]; /* ticks that the clock stood still in this lease; since the renewal was sent */

/*
 * ---- CALM: from some tick on nothing goes wrong any more ----
 *
 * Some nodes work, the others do nothing, for ever. What is late by then never comes. Whatever a working node has to do
 * it does within the tick; it renews once in each, and once more for what it won. Each VIP is wanted by one working node.
 */
#ifdef CALM
#define FREELY (!calm)
#define WORKS(n) (!calm || works[n])
#define RENEWS(n) (!calm || (works[n] && due[n] && !WINS(n)))
#define BEGINS_ANEW(n) (!calm || (works[n] && (due[n] || WINS(n))))
#define WATCHED(x) (!calm || ANOTHER_WORKS(x))
#define ANOTHER_WORKS(x) ((x != 0 && works[0]) || (x != 1 && works[1]) || (x != N - 1 && works[N - 1]))
#define IS_IN_THE_WAY(x) (!calm || BLOCKS(x, 0) || BLOCKS(x, V - 1))
#define BLOCKS(x, v) (holder[v] == x && wantedBy[v] != x && (valid[v] || gone[x]))
#define WANTS(n, v) (!calm || wantedBy[v] == n)
#define GIVES(n, v) (calm -> works[n] && wantedBy[v] != n : MAY(HANDOVER, n))
#define GIVES_BACK(n, v) (calm -> works[n] && wantedBy[v] != n && holder[v] == n && valid[v] : MAY(HANDOVER, n))
#define LETS_GO(n, v) (!calm || (works[n] && (wantedBy[v] == n || (holder[v] == n && valid[v]))))
#define DROPS(n, v) (calm -> works[n] && op[AT(n, v)] >= WON && (holder[v] != n || wantedBy[v] != n) : true)
#ifdef NEVER_RESTS
#define IS_SENT(n)
#else
#define IS_SENT(n) due[n] = false;
#endif
#else
#define FREELY true
#define WORKS(n) true
#define RENEWS(n) true
#define BEGINS_ANEW(n) true
#define WATCHED(x) true
#define IS_IN_THE_WAY(x) true
#define WANTS(n, v) true
#define GIVES(n, v) MAY(HANDOVER, n)
#define GIVES_BACK(n, v) MAY(HANDOVER, n)
#define LETS_GO(n, v) true
#define DROPS(n, v) true
#define IS_SENT(n)
#endif
byte calm;
bool works[N], due[N];
NODE wantedBy[V] = N;
byte calmFor; /* ticks, CALM at most */

/* ---- for SEEK only ---- */
#if defined(SEEK_MOVE) || defined(SEEK_RETURN) || defined(SEEK_KEPT) || defined(SEEK_CREATED)
byte first[V];
bool revoked[N], kept[N], wasLetGo[V];
#endif

/* Scratch of a step. Every loop leaves its variable as it began; the others are put back. */
byte h = N, i = N, j = V;
byte was, answering;

#define ANSWERS(n, v) (entry[AT(n, v)] == OWNED && fence[n] > 0)

inline check()
{
	for (j : 0 .. V - 1) {
		for (i : 0 .. N - 1) {
			answering = answering + (ANSWERS(i, j) -> 1 : 0);
#ifdef SEEK_MOVE
			first[j] = (ANSWERS(i, j) && first[j] == 0 -> i + 1 : first[j]);
			assert(!ANSWERS(i, j) || first[j] == i + 1);
#endif
#ifdef SEEK_RETURN
			assert(!ANSWERS(i, j) || !revoked[i]);
#endif
#ifdef SEEK_CREATED
			assert(!ANSWERS(i, j) || !wasLetGo[j]);
#endif
		}
		assert(answering <= 1);
		answering = 0
	}
	skip
}

#if defined(NO_CONFIRM) || defined(NO_CAS) || defined(NO_EPOCH) || defined(KEEP_OLD) || defined(KEEP_REVOKED)
#define FORGET_FENCE(n)
#else
#define HAS_ENTRY(n) (entry[AT(n, 0)] == OWNED || entry[AT(n, V - 1)] == OWNED)
#define FORGET_FENCE(n) fence[n] = (HAS_ENTRY(n) -> fence[n] : 0); stood[n] = (fence[n] > 0 -> stood[n] : 0);
#endif

inline clearEntry(n, v)
{
	entry[AT(n, v)] = NONE;
	FORGET_FENCE(n)
	skip
}

inline noRenewal(n)
{
	renewal[n] = NONE;
	parting[n] = false;
	creates[n] = false;
	age[n] = 0;
	stoodSince[n] = 0;
	for (j : 0 .. V - 1) {
		op[AT(n, j)] = (op[AT(n, j)] == CONFIRMING -> WON : op[AT(n, j)])
	}
	skip
}

inline noStray(x)
{
	stray[x] = false;
	strayParting[x] = false;
	strayNew[x] = false;
	strayMine[x] = false;
	strayCreates[x] = false
}

inline noOp(n, v)
{
	op[AT(n, v)] = IDLE;
	opCurrent[AT(n, v)] = false;
	opMine[AT(n, v)] = false
}

inline noStrayOp(n, v)
{
	strayOp[AT(n, v)] = IDLE;
	strayCurrent[AT(n, v)] = false
}

/* ---- writes, as the store sees them ---- */

/* A heartbeat has another version: what was seen is old, and what would write over it is refused. */
inline heartbeatChanged(x)
{
	seen[x] = false;
	quiet[x] = 0;
	fresh[x] = false;
	if
	:: renewal[x] == SENT && !creates[x] -> noRenewal(x)
	:: else
	fi;
	if
	:: stray[x] && !strayCreates[x] -> noStray(x)
	:: else
	fi;
	skip
}

/* It has another epoch: every claim of the node is void, for ever. */
inline epochChanged(x)
{
	for (j : 0 .. V - 1) {
		valid[j] = valid[j] && holder[j] != x;
		opCurrent[AT(x, j)] = false;
		strayCurrent[AT(x, j)] = false
	}
	skip
}

/* It was missing. */
inline remade(x)
{
	for (j : 0 .. V - 1) {
		ended[j] = (holder[j] == x && ended[j] == DELETED -> REMADE : ended[j])
	}
	skip
}

inline claimChanged(v)
{
	ended[v] = IN_PLACE;
	waited[v] = 0;
	for (i : 0 .. N - 1) {
		if
		:: UNDER_WAY(op[AT(i, v)]) && op[AT(i, v)] != CREATE -> noOp(i, v)
		:: else
		fi;
		if
		:: strayOp[AT(i, v)] != CREATE -> noStrayOp(i, v)
		:: else
		fi
	}
	skip
}

/* ---- a node's own heartbeat ---- */

#define LENGTH(x) (parted[x] -> P : D)
#ifdef LATE_FENCE
#define LEFT(length, margin, n) (length - margin)
#else
#define LEFT(length, margin, n) (length - margin > age[n] -> length - margin - age[n] : 0)
#endif

/* An ordinary renewal publishes a shorter lease than a parting one before it: the kernel's is cut first. */
#if defined(NO_CLAMP) || P == 0
#define CLAMP(n)
#else
#define CLAMP(n) fence[n] = (fence[n] > D - M -> D - M : fence[n]);
#endif

inline send(n)
{
	IS_SENT(n)
	renewal[n] = SENT;
	creates[n] = gone[n];
	skip
}

/* The answers to what was won so far have come. */
inline confirm(n)
{
	for (j : 0 .. V - 1) {
		op[AT(n, j)] = (op[AT(n, j)] == WON -> CONFIRMING : op[AT(n, j)])
	}
	skip
}

/* A new epoch: the kernel hears of it first. Nothing is this node's any more. */
inline beginAnew(n)
{
	current[n] = false;
	held[n] = false;
	strayMine[n] = false;
	for (j : 0 .. V - 1) {
		opMine[AT(n, j)] = false;
		if
		:: op[AT(n, j)] >= WON -> noOp(n, j)
		:: else
		fi;
#ifndef KEEP_REVOKED
		entry[AT(n, j)] = (entry[AT(n, j)] != NONE -> STALE : NONE)
#endif
	}
#ifndef KEEP_REVOKED
	fence[n] = 0;
	stood[n] = 0;
#endif
	skip
}

/* `was`: 1 created, 2 with a new epoch, 4 with the parting lease. */
inline replaced(n)
{
	if
	:: was & 1 -> remade(n)
	:: else
	fi;
	if
	:: was & 2 -> epochChanged(n)
	:: else
	fi;
	gone[n] = false;
	tomb[n] = false;
	parted[n] = (was & 4) != 0
}

inline renewalApplied(n)
{
	was = (gone[n] -> 1 : 0) + (current[n] -> 0 : 2) + (parting[n] -> 4 : 0);
	renewal[n] = APPLIED;
	heartbeatChanged(n);
	fresh[n] = true;
	replaced(n);
	current[n] = true;
	strayMine[n] = false;
	was = 0
}

inline strayApplied(n)
{
	was = (gone[n] -> 1 : 0) + (strayNew[n] -> 2 : 0) + (strayParting[n] -> 4 : 0);
	current[n] = (strayNew[n] -> strayMine[n] : current[n]);
	noStray(n);
	heartbeatChanged(n);
	replaced(n);
	was = 0
}

inline setEntry(n, v)
{
	entry[AT(n, v)] = (opMine[AT(n, v)] -> OWNED : entry[AT(n, v)]);
	noOp(n, v)
}

/* The server said yes. The fence counts from before the renewal was sent. */
inline renewed(n)
{
	fence[n] = (parting[n] -> LEFT(P, PM, n) : LEFT(D, M, n));
	stood[n] = (fence[n] > 0 -> stoodSince[n] : 0);
	held[n] = true;
#ifndef NO_CONFIRM
	for (j : 0 .. V - 1) {
		if
		:: op[AT(n, j)] == CONFIRMING -> setEntry(n, j)
		:: else
		fi
	}
#endif
	FORGET_FENCE(n)
#ifdef SEEK_KEPT
	assert(!kept[n] || entry[n] != OWNED || fence[n] == 0);
#endif
#ifdef SEEK_PARTED
	assert(fence[n] <= D);
#endif
	noRenewal(n);
	check()
}

/* The sender waits no longer; the request may go on. */
inline giveUp(n)
{
	if
	:: renewal[n] == SENT && MAY(STRAY, n) ->
		stray[n] = true;
		strayParting[n] = parting[n];
		strayNew[n] = !current[n];
		strayMine[n] = !current[n];
		strayCreates[n] = creates[n]
	:: else
	fi;
	noRenewal(n);
	fresh[n] = false
}

inline giveUpOp(n, v)
{
	if
	:: UNDER_WAY(op[AT(n, v)]) && MAY(STRAY_CLAIM, n) ->
		strayOp[AT(n, v)] = op[AT(n, v)];
		strayCurrent[AT(n, v)] = opCurrent[AT(n, v)]
	:: else
	fi;
	noOp(n, v)
}

/* A new incarnation. Its epoch is its kernel's; entries of that epoch stay, and are this node's. */
inline restart(n)
{
	giveUp(n);
	for (i : 0 .. V - 1) {
		giveUpOp(n, i);
#ifdef SEEK_KEPT
		kept[n] = ANSWERS(n, i);
#endif
#ifdef KEEP_OLD
		entry[AT(n, i)] = (entry[AT(n, i)] == STALE -> OWNED : entry[AT(n, i)])
#else
		entry[AT(n, i)] = (entry[AT(n, i)] == STALE -> NONE : entry[AT(n, i)])
#endif
	}
	i = N
}

#define ROOM(n) (!MAY(STRAY, n) || renewal[n] != SENT || !stray[n])
#define ROOM_FOR_OP(n, v) (!MAY(STRAY_CLAIM, n) || !UNDER_WAY(op[AT(n, v)]) || strayOp[AT(n, v)] == IDLE)

#define WINS(n) (op[AT(n, 0)] == WON || op[AT(n, V - 1)] == WON)

#define IS_READY(n) (renewal[n] == NONE && fresh[n])
#define HAS_TO_READ(n) (renewal[n] == NONE && !fresh[n])

proctype Heartbeat(byte n)
{
	do
	:: d_step { IS_READY(n) && RENEWS(n) -> CLAMP(n) send(n) }
	:: d_step { IS_READY(n) && WINS(n) -> CLAMP(n) confirm(n); send(n) }
#if P > 0
	:: d_step { FREELY && MAY(PARTS, n) && IS_READY(n) -> parting[n] = true; send(n) }
	:: d_step { FREELY && MAY(PARTS, n) && IS_READY(n) && WINS(n) -> parting[n] = true; confirm(n); send(n) }
#endif
	/* Read; begin anew if it has another epoch; write. */
	:: d_step { HAS_TO_READ(n) && current[n] && RENEWS(n) -> CLAMP(n) fresh[n] = true; send(n) }
	:: d_step { HAS_TO_READ(n) && current[n] && WINS(n) -> CLAMP(n) fresh[n] = true; confirm(n); send(n) }
	:: d_step { HAS_TO_READ(n) && !current[n] && BEGINS_ANEW(n) -> beginAnew(n); fresh[n] = true; send(n) }
	:: d_step { FREELY && MAY(ANEW, n) && HAS_TO_READ(n) && current[n] -> beginAnew(n); fresh[n] = true; send(n) }
	:: d_step { renewal[n] == SENT && (!creates[n] || gone[n]) -> renewalApplied(n) }
#ifdef LOSE
	:: d_step { renewal[n] == SENT && creates[n] && !gone[n] -> noRenewal(n); fresh[n] = false }
#endif
	:: d_step { renewal[n] == APPLIED -> renewed(n) }
	:: d_step { FREELY && renewal[n] != NONE && ROOM(n) -> giveUp(n) }
	:: d_step { stray[n] && (!strayCreates[n] || gone[n]) -> strayApplied(n) }
	:: d_step { FREELY && MAY(RESTART, n) && ROOM(n) && ROOM_FOR_OP(n, 0) && ROOM_FOR_OP(n, V - 1) -> restart(n) }
	od
}

/* ---- what a node does about another's heartbeat ---- */

#ifdef EARLY
#define SILENT(x) (quiet[x] >= LENGTH(x) - 1)
#else
#define SILENT(x) (quiet[x] >= LENGTH(x))
#endif
#if defined(CREATE_AT_ONCE)
#define ABSENT 0
#elif defined(CREATE_SOON)
#define ABSENT D
#else
#define ABSENT LONGEST
#endif
#define LOST(x) (quiet[x] >= ABSENT)

inline revoke(x)
{
	heartbeatChanged(x);
	epochChanged(x);
	if
	:: gone[x] -> remade(x)
	:: else
	fi;
	tomb[x] = true;
	gone[x] = false;
	parted[x] = false;
	current[x] = false;
#ifdef NO_EPOCH
	right[x] = true;
#endif
#ifdef SEEK_RETURN
	revoked[x] = true;
#endif
	skip
}

/* What a node saw, and for how long, outlives its restart: so a revocation may be a stray one, too. */
proctype Watching(byte x)
{
	do
	:: d_step { !seen[x] && !tomb[x] && WATCHED(x) -> seen[x] = true }
#if !defined(NO_REVOCATION) && !defined(NEVER_REVOKED)
	:: d_step { seen[x] && !gone[x] && !tomb[x] && SILENT(x) && IS_IN_THE_WAY(x) -> revoke(x) }
#endif
#ifdef LOSE
	:: d_step { seen[x] && gone[x] && LOST(x) && IS_IN_THE_WAY(x) -> revoke(x) }
	:: d_step { FREELY && seen[x] && gone[x] && LOST(x) && MAY_ANOTHER(STRAY, x) -> strayTomb[x] = true }
	:: d_step { strayTomb[x] && gone[x] -> strayTomb[x] = false; revoke(x) }
#endif
#ifdef NO_EPOCH
	:: d_step { right[x] -> right[x] = false }
#endif
	od
}

/* ---- what a node does about a claim ---- */

#if defined(NO_SETTLE)
#define SETTLED (ended[v] == REMADE -> 0 : 1)
#elif defined(SETTLE_LONGEST)
#define SETTLED LONGEST
#else
#define SETTLED D
#endif
#if !defined(LOSE) || defined(TAKE_MISSING)
#define VOID(n, v) (holder[v] < N && !valid[v])
#else
#define VOID(n, v) (holder[v] < N && !valid[v] && (ended[v] == IN_PLACE || waited[v] >= SETTLED))
#endif
#if defined(NO_REVOCATION)
#define FREE(n, v) (holder[v] == RELEASED || holder[v] == n || VOID(n, v) || SEEMS_DEAD(holder[v]))
#define SEEMS_DEAD(x) (x < N && seen[x] && SILENT(x))
#elif defined(NO_EPOCH)
#define FREE(n, v) (holder[v] == RELEASED || (holder[v] < N && holder[v] != n && right[holder[v]]))
#else
#define FREE(n, v) (holder[v] == RELEASED || holder[v] == n || VOID(n, v))
#endif
#ifdef ASK_EARLY
#define MAY_ASK(n) true
#else
#define MAY_ASK(n) held[n]
#endif
#define IDLES(n, v) (MAY_ASK(n) && op[AT(n, v)] == IDLE && entry[AT(n, v)] == NONE)
#define OWNS(n, v) (op[AT(n, v)] == IDLE && entry[AT(n, v)] == OWNED && holder[v] == n)

inline sendOp(n, v, what)
{
	op[AT(n, v)] = what;
	opCurrent[AT(n, v)] = (what <= CREATE) && current[n];
	opMine[AT(n, v)] = (what <= CREATE)
}

/* If it is void from the start, that can be seen as soon as there is a heartbeat. */
#ifdef LOSE
#define BORN(n, v) ended[v] = (gone[n] && !valid[v] -> DELETED : IN_PLACE);
#else
#define BORN(n, v)
#endif

/* `was`: 1 the epoch is the store's, 2 it is the agent's. */
inline taken(n, v)
{
	was = (opCurrent[AT(n, v)] -> 1 : 0) + (opMine[AT(n, v)] -> 2 : 0);
	claimChanged(v);
	holder[v] = n;
	valid[v] = was & 1;
	BORN(n, v)
	op[AT(n, v)] = (was & 2 -> WON : IDLE);
	opCurrent[AT(n, v)] = false;
	opMine[AT(n, v)] = (was & 2) != 0;
	was = 0
}

inline takenByStray(n, v)
{
	was = (strayCurrent[AT(n, v)] -> 1 : 0);
	noStrayOp(n, v);
	claimChanged(v);
	holder[v] = n;
	valid[v] = was;
	BORN(n, v)
	was = 0
}

inline freed(v, to)
{
	claimChanged(v);
	holder[v] = to;
	valid[v] = false
}

#ifdef SEEK_CREATED
#define LET_GO(v) wasLetGo[v] = true
#else
#define LET_GO(v) skip
#endif

#define ARRIVES(n, v, what) (op[AT(n, v)] == what || strayOp[AT(n, v)] == what)

proctype Claiming(byte n; byte v)
{
	do
	:: d_step { IDLES(n, v) && FREE(n, v) && !deleting[v] && WANTS(n, v) -> sendOp(n, v, TAKE) }
	:: d_step { op[AT(n, v)] == TAKE -> taken(n, v) }
	:: d_step { strayOp[AT(n, v)] == TAKE -> takenByStray(n, v) }
	/* No answer, or something that a watch showed, or the VIP is no longer wanted. */
	:: d_step { op[AT(n, v)] != IDLE && DROPS(n, v) && ROOM_FOR_OP(n, v) -> giveUpOp(n, v) }
	:: d_step { entry[AT(n, v)] == STALE && WORKS(n) -> entry[AT(n, v)] = NONE }
	:: d_step { entry[AT(n, v)] == OWNED && holder[v] != n && WORKS(n) -> clearEntry(n, v) }
#ifdef NO_CONFIRM
	:: d_step { op[AT(n, v)] == WON -> setEntry(n, v); check() }
#endif
#ifdef NO_CAS
	:: d_step { IDLES(n, v) && holder[v] == n && valid[v] -> entry[AT(n, v)] = OWNED; check() }
#endif
#ifdef NO_EPOCH
	:: d_step { IDLES(n, v) && holder[v] == n -> entry[AT(n, v)] = OWNED; check() }
#endif

	/* Hand-over: the kernel first. */
#ifdef BAD_RELEASE
	:: d_step { GIVES(n, v) && OWNS(n, v) -> sendOp(n, v, RELEASE) }
#else
	:: d_step { GIVES(n, v) && OWNS(n, v) -> clearEntry(n, v); sendOp(n, v, RELEASE) }
#endif
#ifndef KEEPS_IDLE
	/* What its kernel never had, or a host outside has: that may be a void claim of another node. */
	:: d_step { IDLES(n, v) && FREE(n, v) && holder[v] < N && !deleting[v] && GIVES_BACK(n, v) -> sendOp(n, v, RELEASE) }
#endif
	:: d_step { ARRIVES(n, v, RELEASE) -> freed(v, RELEASED) }

#ifdef DELETE
#ifdef BAD_LETGO
	:: d_step { OWNS(n, v) && deleting[v] -> sendOp(n, v, LETGO) }
#else
	:: d_step { OWNS(n, v) && deleting[v] && WORKS(n) -> clearEntry(n, v); sendOp(n, v, LETGO) }
#endif
#ifndef NEVER_LET_GO
	:: d_step { IDLES(n, v) && deleting[v] && FREE(n, v) && LETS_GO(n, v) -> sendOp(n, v, LETGO) }
#endif
	:: d_step { ARRIVES(n, v, LETGO) -> deleting[v] = false; freed(v, MISSING); LET_GO(v) }
	:: d_step { IDLES(n, v) && holder[v] == MISSING && WANTS(n, v) -> sendOp(n, v, CREATE) }
	:: d_step { op[AT(n, v)] == CREATE && holder[v] == MISSING -> taken(n, v) }
	:: d_step { op[AT(n, v)] == CREATE && holder[v] != MISSING -> noOp(n, v) }
	:: d_step { strayOp[AT(n, v)] == CREATE && holder[v] == MISSING -> takenByStray(n, v) }
#endif
	od
}

/* ---- time ---- */

#define PENDING(n) (renewal[n] != NONE)
#define LIMIT(x) (gone[x] -> ABSENT : LENGTH(x))

inline tick(n)
{
	fence[n] = (fence[n] > 0 -> fence[n] - 1 : 0);
	stood[n] = (fence[n] > 0 -> stood[n] : 0);
	age[n] = (PENDING(n) && age[n] < (parting[n] -> P - PM : D - M) -> age[n] + 1 : age[n]);
	skip
}

/* What the others count of a node, and of what became of its claims. */
inline othersTick(x)
{
	quiet[x] = quiet[x] + (seen[x] && quiet[x] < LIMIT(x) -> 1 : 0);
#if defined(LOSE) && !defined(NO_SETTLE)
	for (j : 0 .. V - 1) {
		waited[j] = waited[j] + (ended[j] == REMADE && holder[j] == x && waited[j] < SETTLED -> 1 : 0)
	}
#endif
	skip
}

#define ALLOWED(length) (SKIP * (length) / D)
#define MAY_STAND(n) (FREELY && (fence[n] > 0 || PENDING(n)) && \
	stood[n] < ALLOWED(LENGTH(n)) && stoodSince[n] < (parting[n] -> ALLOWED(P) : SKIP))

/* One clock stands still while the others go on; a third node then counts for both. */
inline stand(n)
{
	stood[n] = (fence[n] > 0 -> stood[n] + 1 : 0);
	stoodSince[n] = (PENDING(n) -> stoodSince[n] + 1 : 0);
	for (h : 0 .. N - 1) {
		if
		:: h != n -> tick(h)
		:: else
		fi;
		if
		:: h == n || N > 2 -> othersTick(h)
		:: else
		fi
	}
	skip
}

inline allTick()
{
	for (h : 0 .. N - 1) {
		tick(h);
		othersTick(h)
	}
	skip
}

#ifdef CALM
/* Where a third node may have been the one that saw it first, all begin to count again. */
inline becomesCalm(working, first, last)
{
	wantedBy[V - 1] = last;
	wantedBy[0] = first;
	for (h : 0 .. N - 1) {
		works[h] = (working >> h) & 1;
		due[h] = works[h];
		strayTomb[h] = false;
		noStray(h);
		if
		:: !works[h] ->
			noRenewal(h);
			fresh[h] = false;
			current[h] = false;
			held[h] = false
		:: else
		fi;
		for (i : 0 .. V - 1) {
			noStrayOp(h, i);
			if
			:: !works[h] -> noOp(h, i)
			:: else
			fi
		}
		i = N;
		if
		:: N > 2 || !ANOTHER_WORKS(h) ->
			seen[h] = false;
			quiet[h] = 0
		:: else
		fi
	}
	h = N;
	allTick();
	calm = true
}

inline allIsWell()
{
	for (j : 0 .. V - 1) {
		assert(calmFor < CALM || ANSWERS(wantedBy[j], j))
	}
	skip
}

inline calmTick()
{
	allIsWell();
	allTick();
	for (h : 0 .. N - 1) {
		due[h] = works[h]
	}
	calmFor = (calmFor < CALM -> calmFor + 1 : CALM);
	allIsWell()
}

#define CALMS(working, first, last) :: d_step { !calm -> becomesCalm(working, first, last) } goto calmed
#endif

/* ENDLESS: whatever goes on for ever goes through a label that begins with "progress". */
proctype Clock()
{
progressWild:
	do
	:: d_step { FREELY -> allTick() }
#if SKIP > 0
	:: d_step { MAY_STAND(0) -> stand(0) }
	:: d_step { MAY_STAND(1) -> stand(1) }
#if N > 2
	:: d_step { MAY_STAND(2) -> stand(2) }
#endif
#endif
#ifdef CALM
	CALMS(1, 0, 0)
	CALMS(2, 1, 1)
	CALMS(3, 0, 0)
	CALMS(3, 1, 1)
#if V > 1
	CALMS(3, 0, 1)
	CALMS(3, 1, 0)
#endif
#if N > 2
	CALMS(4, 2, 2)
	CALMS(5, 0, 0)
	CALMS(5, 2, 2)
	CALMS(6, 1, 1)
	CALMS(6, 2, 2)
	CALMS(7, 0, 0)
	CALMS(7, 1, 1)
	CALMS(7, 2, 2)
#endif
#if N > 2 && V > 1
	CALMS(5, 0, 2)
	CALMS(5, 2, 0)
	CALMS(6, 1, 2)
	CALMS(6, 2, 1)
	CALMS(7, 0, 1)
	CALMS(7, 0, 2)
	CALMS(7, 1, 0)
	CALMS(7, 1, 2)
	CALMS(7, 2, 0)
	CALMS(7, 2, 1)
#endif
	od;
calmed:
	do
	:: d_step { timeout -> calmTick() }
#ifdef ENDLESS
progressTick:
		skip
#endif
#endif
	od
}

/* ---- people ---- */

proctype DeletesClaim(byte v)
{
	do
	:: d_step { FREELY && holder[v] != MISSING && !deleting[v] -> claimChanged(v); deleting[v] = true }
	od
}

#ifdef FORCED
#define NOBODY_HAS(v) true
#else
#define NOBODY_HAS(v) (HAS_NOTHING(0, v) && HAS_NOTHING(1, v) && HAS_NOTHING(N - 1, v))
#endif
#define HAS_NOTHING(n, v) (op[AT(n, v)] == IDLE && entry[AT(n, v)] == NONE)

proctype Uninstalls(byte v)
{
	do
	:: d_step { FREELY && holder[v] != MISSING && NOBODY_HAS(v) -> deleting[v] = false; freed(v, MISSING) }
	od
}

inline lose(n)
{
	for (j : 0 .. V - 1) {
		ended[j] = (holder[j] == n && valid[j] -> DELETED : ended[j])
	}
	skip
}

proctype DeletesHeartbeat(byte n)
{
	do
	:: d_step { FREELY && !gone[n] ->
		lose(n); heartbeatChanged(n); epochChanged(n);
		gone[n] = true; tomb[n] = false; parted[n] = false; current[n] = false }
	od
}

init
{
	byte a, b;
	d_step {
		for (a : 0 .. N - 1) {
			current[a] = true;
			held[a] = true;
			fresh[a] = true;
		}
		for (a : 0 .. V - 1) {
#ifdef DELETE
			holder[a] = MISSING
#else
			holder[a] = RELEASED
#endif
		}
		a = 0;
		b = 0
	}
	atomic {
		run Clock();
		for (a : 0 .. N - 1) {
			run Heartbeat(a);
			run Watching(a);
			for (b : 0 .. V - 1) {
				run Claiming(a, b)
			}
#ifdef LOSE
			if
			:: MAY(LOSE, a) -> run DeletesHeartbeat(a)
			:: else
			fi
#endif
		}
#ifdef DELETE
		for (b : 0 .. V - 1) {
			run DeletesClaim(b);
#ifdef UNINSTALL
			run Uninstalls(b)
#endif
		}
#endif
		a = 0;
		b = 0
	}
#ifdef SEEK_START
	assert(false)
#endif
}
