/*
 * Symmetry of the model: nodes that may do the same are alike, and so are VIPs. It goes to the end of Spin's pan.c.
 *
 * A state is looked up as the first of all the states that differ from it by the numbers of nodes and VIPs alone, but
 * the search goes on from the state itself. So a trace is a real one, and a shortest one is as long as without this.
 *
 * For a given order of the VIPs, the nodes are sorted by all that there is of each, and by which VIPs name it. Two that
 * are equal in that may be swapped without a change. So what comes out is the same for all numberings.
 *
 * run.py makes the lists from the declarations in the model: IS(name) for what there is of each node, of each node and
 * VIP, and of each VIP; NAMES are those of each VIP that are a node's number, or more when they are nobody's.
 */
#include <stddef.h>

#define IS(name) offsetof(State, name),
#define EACH(k, list) (size_t k = 0; k < sizeof(list) / sizeof *(list); k++)

static const size_t of_node[] = {OF_NODE}, of_both[] = {OF_BOTH}, of_vip[] = {OF_VIP}, names[] = {NAMES};

/* What there is of a node and of a VIP, in one line. */
typedef struct {
	uchar at[sizeof of_node + V * (sizeof of_both + sizeof names)];
} Node;
typedef struct {
	Node node[N];
	uchar vip[V][sizeof of_vip + sizeof names];
} Form;

static void sort(Node *node)
{
	for (int n = 1; n < N; n++) {
		Node moved = node[n];
		int to = n;
		for (; to > 0 && memcmp(&node[to - 1], &moved, sizeof moved) > 0; to--)
			node[to] = node[to - 1];
		node[to] = moved;
	}
}

/* The state with the VIPs in that order, and the nodes in the one that follows from it. */
static void form(Form *form, const int *order)
{
	const uchar *state = (const uchar *)&now;
	memset(form, 0, sizeof *form);
	for (int n = 0; n < N; n++) {
		uchar *at = form->node[n].at;
		for EACH (k, of_node)
			*at++ = state[of_node[k] + n];
		for (int v = 0; v < V; v++) {
			for EACH (k, of_both)
				*at++ = state[of_both[k] + n * V + order[v]];
			for EACH (k, names)
				*at++ = state[names[k] + order[v]] == n;
		}
	}
	sort(form->node);
	for (int v = 0; v < V; v++) {
		uchar *at = form->vip[v];
		for EACH (k, of_vip)
			*at++ = state[of_vip[k] + order[v]];
		for EACH (k, names)
			*at++ = state[names[k] + order[v]] < N ? 0 : state[names[k] + order[v]];
	}
}

static void become(const Form *form)
{
	uchar *state = (uchar *)&now;
	for (int v = 0; v < V; v++) {
		const uchar *at = form->vip[v];
		for EACH (k, of_vip)
			state[of_vip[k] + v] = *at++;
		for EACH (k, names)
			state[names[k] + v] = *at++;
	}
	for (int n = 0; n < N; n++) {
		const uchar *at = form->node[n].at;
		for EACH (k, of_node)
			state[of_node[k] + n] = *at++;
		for (int v = 0; v < V; v++) {
			for EACH (k, of_both)
				state[of_both[k] + n * V + v] = *at++;
			for EACH (k, names)
				if (*at++)
					state[names[k] + v] = n;
		}
	}
}

/* Looks the state up, or stores it, as `store` does. */
int as_first(int (*store)(char *, int))
{
	static const int orders[2][2] = {{0, V - 1}, {V - 1, 0}};
	static State kept;
	Form first, other;
	memcpy(&kept, &now, vsize);
	form(&first, orders[0]);
	if (V > 1) {
		form(&other, orders[1]);
		if (memcmp(&other, &first, sizeof other) < 0)
			first = other;
	}
	become(&first);
	int found = store((char *)&now, vsize);
	memcpy(&now, &kept, vsize);
	return found;
}
