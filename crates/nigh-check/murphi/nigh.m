-- Nigh's consistency contract as a model of its own, for rumur (Murphi).
--
-- It was written from the contract and docs/design/coherence.md alone and shares no code with the machines in
-- nigh-protocol: where the two agree, a mistake in one encoding is not the reason. Programs are not given: an
-- invocation does any reads and writes, up to STEPS of them, on any node, in any order of events.
--
-- Sections: 1 the world, 2 the rules, 3 types, 4 state, 5 what an observer knows, 6 messages, 7 the node, 8 the home,
-- 9 scheduler and invocations, 10 reads, 11 writes, 12 the store, 13 faults, 14 clients outside, 15 promises.
-- "[n]" names a rule of section 2. One constant a line: who runs this file sets them by name.

-- ---------------------------------------------------------------------------------------------- 1 the world
const
  NODES: 2;
  SHARDS: 1;
  OBJECTS: 1;              -- object o lies in shard (o - 1) mod SHARDS + 1
  INVOCATIONS: 3;          -- dispatched in the order of their numbers
  STEPS: 2;                -- reads and writes an invocation does at most
  WRITES: 2;               -- writes in all
  READ_ONLY: 0;            -- the first so many invocations only read
  NETWORK: 6;              -- messages under way to and from a node at most; too few is an error, not a limit
  EPOCHS: 1;               -- reigns of each home; above 1 each may be replaced, and the old one goes on
  REPLACED: 0;             -- replacements of homes in all
  INCARNATIONS: 1;         -- lives of a node
  CRASHES: 0;              -- of nodes
  SUSPICIONS: 0;           -- incarnations that homes give up though they live
  SCHEDULER_CRASHES: 0;
  KILLS: 0;                -- invocations ended from outside, whatever they do
  LOSSES: 0;
  DUPLICATES: 0;
  EVICTIONS: 0;
  PUSHES: 0;               -- 1: homes push to the store
  FORGETS: 0;              -- entries that homes forget, when they are pushed
  TRIMS: 0;                -- records taken out of the ledger
  CALLS: 0;                -- invocations called by invocations
  PARTS: 1;                -- requests by which an object is fetched: 1 or 2
  OUTSIDE_WRITES: 0;       -- by clients at the S3 door
  OUTSIDE_READS: 0;
  WARM: 1;                 -- 1: every node begins with a copy of every object
  RESETS: 0;               -- 1: sequence numbers begin anew in each reign; 0: they go on
  FINISH: 0;               -- 1: faults and new work may end at any moment; what was begun must then be able to finish

-- ---------------------------------------------------------------------------------------------- 2 the rules
-- Each can be left out, one at a time: OMIT names it.
  GATE: 1;                 -- a dispatch begins when the node covers the token it carries
  NAMED_INCARNATION: 2;    -- a dispatch names the incarnation it is for; another refuses it
  CONTIGUOUS_PREFIX: 3;    -- a cover (k, v) counts when all of the first k invalidations are applied
  EPOCH_IN_TOKENS: 4;      -- a token names the epoch too
  EPOCH_FLUSH: 5;          -- a higher epoch drops the shard's older copies
  FLOOR: 6;                -- nothing below the floor is kept
  SERVE_FLOOR: 7;          -- nothing below the floor is shown
  ACK_FLOOR: 8;            -- nor kept by the acknowledgement of an own write
  MATCH_REPLIES: 9;        -- an answer matches the attempt it answers
  COVER_BEFORE_SHOW: 10;   -- what is read is shown when the node covers its token
  OWN_NUMBER: 11;          -- a version's token has the version itself
  WRITER_TOKEN: 12;        -- and what its writer had seen
  SUMMARY: 13;             -- a token is forgotten only into the home's summary
  REFUSE_GIVEN_UP: 14;     -- a home answers no question of an incarnation that it gave up
  REFUSE_PUTS: 15;         -- and takes no put of it
  NEW_INCARNATION: 16;     -- with a new incarnation its counter and its shares begin anew
  REQUEST_IDS: 17;         -- a put that is asked for again is the same put
  PUTS_OF_THIS_EPOCH: 18;  -- a put sent in an earlier reign is not taken
  RECALL: 19;              -- a home that forgets an object recalls its copies
  ENDS_CARRY_READS: 20;    -- an end carries the whole token, reads included
  FATE_OF_PUTS: 21;        -- an end is told when no put of it can commit any more
  FENCE_FIRST: 22;         -- a lost node is fenced at every home before its invocations are declared ended
  READ_AFTER_FENCE: 23;    -- and every home's sequence read
  RESTART_BARRIER: 24;     -- a scheduler reads every home before its first dispatch
  HAND_OVER: 25;           -- a put from outside hands its token to the scheduler before it is acknowledged
  OUTSIDE_ASKS_HOME: 26;   -- a get from outside checks the version at the home
  CHECK_EPOCH: 27;         -- which answers such a check only if it still reigns
  DURABLE_FIRST: 28;       -- a put is acknowledged when the ledger has it
  LEDGER_FENCE: 29;        -- the ledger refuses a deposed home
  TRIM_PUSHED: 30;         -- a record is trimmed when the store has the write
  TRIM_SETTLED: 31;        -- and the put's answer has arrived
  FENCES_LAST: 32;         -- a fence binds the next home too
  NEW_HOME_SUMMARY: 33;    -- a new home's summary is the present sequence of every shard
  FORGOTTEN_MARK: 34;      -- what has no entry counts as the newest that was forgotten
  PUSH_FORWARD: 35;        -- a push never replaces a newer version in the store
  STORE_TELLS_EPOCH: 36;   -- a home does not answer by what a later reign put into the store
  END_AT_REJOIN: 37;       -- what ran on a node ends when it begins a new incarnation
  CALLS_CARRY: 38;         -- a call carries the caller's token
  ANSWERS_CARRY: 39;       -- an answer carries the callee's token
  PIN_PARTS: 40;           -- all parts of one read are of one version
  WRITE_TAKES_COPY: 41;    -- a write that begins takes the copy away, and no fetch begun before is kept
  ASK: 42;                 -- who does not cover a token asks the home
  RESEND: 43;              -- an invalidation is sent again until it is applied
  NEVER_WAIT: 44;          -- a put's acknowledgement waits for no sharer
  SHARE_ON_FETCH: 45;      -- who fetches to keep is a sharer
  NEWEST_EPOCH: 46;        -- a node hears no home of a reign older than one it has met
  OMIT: 0;

-- ---------------------------------------------------------------------------------------------- 3 types
  BASE: WRITES + 1;
  COUNT: WRITES + FORGETS;
  -- Kinds of messages: to a home, and from one.
  NoMsg: 0; FetchMsg: 1; PutMsg: 2; AskMsg: 3;
  FoundMsg: 4; ChangedMsg: 5; WrittenMsg: 6; CoversMsg: 7; InvalidateMsg: 8; RefusedMsg: 9;

type
  Node: scalarset(NODES);
  Slot: 1..NETWORK;
  Shard: 1..SHARDS;
  Object: 1..OBJECTS;
  Invocation: 1..INVOCATIONS;
  Epoch: 1..EPOCHS;
  Incarnation: 0..INCARNATIONS;              -- 0: none
  Data: 0..WRITES;                           -- what an object holds: the number of a write; 0 at first
  Count: 0..COUNT;                           -- invalidations sent to an incarnation in a reign
  Version: 0..EPOCHS * BASE - 1;             -- (epoch, sequence), in their order: see version_of()
  Token: array [Shard] of Version;
  Promise: enum { Nothing, P1, P2, P3, P4, P6 };
  Stamped: record
    version: Version;
    data: Data;
    mixed: boolean;                          -- its parts come of different writes
    token: Token;
  end;
  Kind: NoMsg..RefusedMsg;
  Message: record
    kind: Kind;
    incarnation: Incarnation;                -- of the node it is from or for
    epoch: Epoch;                            -- to a home: the highest the node has met; from a home: its own
    shard: Shard;
    object: Object;
    current: boolean;                        -- of the attempt under way: all that a number of it would tell
    shared: boolean;                         -- asked for, or given, to be kept; of an invalidation: a recall
    part: 1..PARTS;
    version: Version;                        -- of a later part: that of the first; else what is invalidated
    write: Data;
    stamped: Stamped;
    k: Count;                                -- the cover (k, upto)
    upto: Version;
    lost: boolean;                           -- an invalidation that must be sent again
  end;
  Fetch: record
    state: enum { NoFetch, Asked, Held };
    private: boolean;                        -- a write began since, or was under way: neither joined nor kept
    part: 1..PARTS;
    found: Stamped;
  end;

-- ---------------------------------------------------------------------------------------------- 4 state
var
  net: array [Node] of array [Slot] of Message; -- a bag: kept sorted, so that no order is told apart
  node: array [Node] of record
    alive: boolean;
    incarnation: Incarnation;
    refused: boolean;                        -- it knows that a home gave it up
    has: array [Object] of boolean;
    copy: array [Object] of Stamped;
    fetch: array [Object] of Fetch;
    floor: array [Object] of Version;
    epoch: array [Shard] of Epoch;           -- the highest it has met
    applied: array [Shard] of Count;         -- invalidations, all up to here
    ahead: array [Shard] of array [Count] of boolean;
    upto: array [Shard] of Version;          -- what it covers
    claim: array [Shard] of array [Count] of Version; -- what it covers when the first k are applied
  end;
  reign: array [Shard] of Epoch;             -- the home in charge
  home: array [Shard] of array [Epoch] of record
    last: Version;                           -- the newest it has applied
    forgotten: Version;
    summary: Token;
    has: array [Object] of boolean;
    entry: array [Object] of Stamped;
    sharer: array [Object] of array [Node] of boolean;
    met: array [Node] of Incarnation;
    sent: array [Node] of Count;
    given_up: array [Node] of Incarnation;
    knows: array [Data] of boolean;          -- puts that it answers again
  end;
  ledger: record
    last: Token;
    has: array [Object] of boolean;
    newest: array [Object] of Stamped;
    puts: array [Data] of boolean;
    fence: array [Shard] of array [Node] of Incarnation;
  end;
  store: array [Object] of record version: Version; data: Data; end;
  scheduler: record
    token: Token;
    read: array [Shard] of boolean;          -- the home was read since the restart
    lost: array [Node] of array [Shard] of Incarnation; -- fenced and read there
  end;
  run: array [Invocation] of record
    state: enum { Waiting, Sent, Running, Killed, Over };
    told: boolean;                           -- its end is known
    op: enum { NoOp, Reading, Writing, Calling };
    object: Object;
    write: Data;
    steps: 0..STEPS;
    node: Node;
    incarnation: Incarnation;
    token: Token;
    parent: 0..INVOCATIONS;
    must: array [Object] of Version;         -- the observer's: see section 5
    seen: array [Object] of Version;
    past: array [Object] of Version;
  end;
  outside: record
    state: enum { Idle, Committed, Handed };
    write: Data;
    seen: array [Object] of Version;
  end;
  given: record                              -- by the start state: so worlds of one size are one program
    omitted: 0..46;
    steps: 0..STEPS;
    writes: 0..WRITES;
    read_only: 0..READ_ONLY;
    warm: 0..1;
    pushes: 0..PUSHES;
    finish: 0..FINISH;
  end;
  left: record                               -- faults and the like that may still come
    replaced: 0..REPLACED;
    crashes: 0..CRASHES;
    suspicions: 0..SUSPICIONS;
    scheduler_crashes: 0..SCHEDULER_CRASHES;
    kills: 0..KILLS;
    losses: 0..LOSSES;
    duplicates: 0..DUPLICATES;
    evictions: 0..EVICTIONS;
    forgets: 0..FORGETS;
    trims: 0..TRIMS;
    calls: 0..CALLS;
    outside_writes: 0..OUTSIDE_WRITES;
    outside_reads: 0..OUTSIDE_READS;
  end;
  calm: boolean;                             -- faults and new work have ended
  -- The observer's.
  begun: Data;                               -- writes numbered so far
  of_object: array [Data] of Object;
  writer: array [Data] of 0..INVOCATIONS;    -- 0: a client outside
  committed: array [Data] of Version;        -- 0: not; or what there was at first
  acknowledged: array [Data] of boolean;
  past_of: array [Data] of array [Object] of Version;
  ended: record
    wrote: array [Object] of Version;
    seen: array [Object] of Version;
    past: array [Object] of Version;
  end;
  broken: Promise;

function keeps(rule_number: 0..99): boolean;
begin return given.omitted != rule_number; end;

function shard_of(o: Object): Shard;
begin return (o - 1) % SHARDS + 1; end;

function version_of(e: Epoch; sequence: Data): Version;
begin return (e - 1) * BASE + sequence; end;

function epoch_of(v: Version): Epoch;
begin return v / BASE + 1; end;

function newer(a: Version; b: Version): Version;
begin return a > b ? a : b; end;

procedure join(var into: Token; from: Token);
begin for s: Shard do into[s] := newer(into[s], from[s]); end; end;

-- ---------------------------------------------------------------------------------------------- 5 the observer
-- It sees every write, and judges readers by the write whose bytes they were shown. Of an invocation it knows
--   must  what those had written that ended before its dispatch (P1),
--   seen  what it, and those before it in its chain, have read and written (P4),
--   past  what those had seen who wrote that (P6).

-- The last write of the object up to this version.
function content(o: Object; v: Version): Data;
var found: Data;
begin
  found := 0;
  for w: Data do
    if w > 0 & w <= begun & of_object[w] = o & committed[w] > committed[found] & committed[w] <= v then found := w; end;
  end;
  return found;
end;

procedure break(promise: Promise);
begin if broken = Nothing then broken := promise; end; end;

procedure observe(i: Invocation; o: Object; shown: Stamped);
var v: Version;
begin
  v := committed[shown.data];
  if !run[i].told then
    if shown.mixed | content(o, shown.version) != shown.data then break(P2);
    elsif v < run[i].must[o] then break(P1);
    elsif v < run[i].seen[o] then break(P4);
    elsif v < run[i].past[o] then break(P6);
    end;
  end;
  run[i].seen[o] := newer(run[i].seen[o], v);
  for p: Object do run[i].past[p] := newer(run[i].past[p], past_of[shown.data][p]); end;
end;

procedure observe_commit(w: Data; v: Version);
begin
  if committed[w] != 0 then break(P3);
  elsif exists later: Data do later > w & writer[later] = writer[w] & writer[w] > 0 & committed[later] != 0 end then break(P3);
  elsif writer[w] > 0 then
    if run[writer[w]].told then break(P1); end;
  end;
  if committed[w] = 0 then
    committed[w] := v;
    past_of[w][of_object[w]] := newer(past_of[w][of_object[w]], v);
  end;
end;

procedure observe_end(i: Invocation);
begin
  run[i].told := true;
  for o: Object do
    ended.seen[o] := newer(ended.seen[o], run[i].seen[o]);
    ended.past[o] := newer(ended.past[o], newer(run[i].past[o], run[i].seen[o]));
  end;
  for w: Data do
    if w > 0 & w <= begun & writer[w] = i & committed[w] != 0 then
      ended.wrote[of_object[w]] := newer(ended.wrote[of_object[w]], committed[w]);
    end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 6 messages
function is(n: Node; x: Slot; kind: Kind): boolean;
begin return net[n][x].kind = kind; end;

function to_home(kind: Kind): boolean;
begin return kind = FetchMsg | kind = PutMsg | kind = AskMsg; end;

function answers_fetch(kind: Kind): boolean;
begin return kind = FoundMsg | kind = ChangedMsg; end;

-- Each message to a node names the incarnation it is for and its home's epoch. What is for an ended life, of an older
-- reign [46], or of another attempt than that under way [9] will never be heard: it is not kept under way.
function is_void(n: Node; m: Message): boolean;
begin
  if m.kind = NoMsg | to_home(m.kind) then return false; end;
  if !node[n].alive | node[n].incarnation != m.incarnation then return true; end;
  if keeps(NEWEST_EPOCH) & m.epoch < node[n].epoch[m.shard] then return true; end;
  return keeps(MATCH_REPLIES) & answers_fetch(m.kind) & !m.current;
end;

function token_precedes(a: Token; b: Token): boolean;
begin
  for s: Shard do
    if a[s] != b[s] then return a[s] < b[s]; end;
  end;
  return false;
end;

-- Any total order will do.
function precedes(a: Message; b: Message): boolean;
begin
  if a.kind != b.kind then return a.kind > b.kind; end;
  if a.object != b.object then return a.object < b.object; end;
  if a.shard != b.shard then return a.shard < b.shard; end;
  if a.write != b.write then return a.write < b.write; end;
  if a.k != b.k then return a.k < b.k; end;
  if a.upto != b.upto then return a.upto < b.upto; end;
  if a.version != b.version then return a.version < b.version; end;
  if a.epoch != b.epoch then return a.epoch < b.epoch; end;
  if a.incarnation != b.incarnation then return a.incarnation < b.incarnation; end;
  if a.current != b.current then return a.current; end;
  if a.shared != b.shared then return a.shared; end;
  if a.lost != b.lost then return a.lost; end;
  if a.part != b.part then return a.part < b.part; end;
  if a.stamped.version != b.stamped.version then return a.stamped.version < b.stamped.version; end;
  if a.stamped.data != b.stamped.data then return a.stamped.data < b.stamped.data; end;
  return token_precedes(a.stamped.token, b.stamped.token);
end;

procedure post(n: Node; m: Message);
var moved: Message; displaced: Message;
begin
  if !is_void(n, m) then
    assert net[n][NETWORK].kind = NoMsg "NETWORK is large enough";
    moved := m;
    for x: Slot do
      if net[n][x].kind = NoMsg | precedes(moved, net[n][x]) then
        displaced := net[n][x];
        net[n][x] := moved;
        moved := displaced;
      end;
    end;
  end;
end;

procedure take(n: Node; x: Slot);
begin
  for y: Slot do
    if y >= x & y < NETWORK then net[n][y] := net[n][y + 1]; end;
  end;
  clear net[n][NETWORK];
end;

-- After something by which messages are void, or have another place in the order.
procedure sort_messages(n: Node);
var all: array [Slot] of Message;
begin
  all := net[n];
  clear net[n];
  for x: Slot do
    if all[x].kind != NoMsg then post(n, all[x]); end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 7 the node
function lives(i: Invocation): boolean;      -- on its node
begin
  return (run[i].state = Running | run[i].state = Killed) & node[run[i].node].alive
    & node[run[i].node].incarnation = run[i].incarnation;
end;

function writing(n: Node; o: Object): boolean;
begin
  return exists i: Invocation do
    lives(i) & run[i].node = n & run[i].op = Writing & run[i].object = o
  end;
end;

function covered(n: Node; s: Shard; v: Version): boolean;
begin
  if keeps(EPOCH_IN_TOKENS) then return v <= node[n].upto[s]; end;
  return v % BASE <= node[n].upto[s] % BASE;
end;

function covers(n: Node; token: Token): boolean;
begin return forall s: Shard do covered(n, s, token[s]) end; end;

-- A floor is kept while something is outstanding.
procedure settle_floor(n: Node; o: Object);
begin
  if node[n].fetch[o].state = NoFetch & !writing(n, o) then node[n].floor[o] := 0; end;
end;

procedure drop_copy(n: Node; o: Object);
begin
  node[n].has[o] := false;
  clear node[n].copy[o];
end;

procedure send_fetch(n: Node; o: Object);
var m: Message;
begin
  clear m;
  m.kind := FetchMsg;
  m.incarnation := node[n].incarnation;
  m.shard := shard_of(o);
  m.epoch := node[n].epoch[m.shard];
  m.object := o;
  m.current := true;
  m.shared := !node[n].fetch[o].private;
  m.part := node[n].fetch[o].part;
  m.version := node[n].fetch[o].found.version;
  post(n, m);
end;

-- From here on no answer to an earlier attempt is the one waited for.
procedure end_attempt(n: Node; o: Object);
begin
  for x: Slot do
    if (is(n, x, FetchMsg) | answers_fetch(net[n][x].kind)) & net[n][x].object = o then net[n][x].current := false; end;
  end;
  sort_messages(n);
  clear node[n].fetch[o];
end;

procedure new_attempt(n: Node; o: Object);
begin
  end_attempt(n, o);
  node[n].fetch[o].state := Asked;
  node[n].fetch[o].private := writing(n, o) & keeps(WRITE_TAKES_COPY);
end;

procedure raise_floor(n: Node; o: Object; v: Version);
begin
  if node[n].fetch[o].state != NoFetch | writing(n, o) then
    node[n].floor[o] := newer(node[n].floor[o], v);
    if node[n].fetch[o].state = Held & node[n].fetch[o].found.version < node[n].floor[o] & keeps(SERVE_FLOOR) then
      new_attempt(n, o);
    end;
  end;
end;

-- A new reign: counters and floors begin anew; older copies go [5]; what is asked is asked again.
procedure learn_epoch(n: Node; s: Shard; e: Epoch);
begin
  if e > node[n].epoch[s] then
    node[n].epoch[s] := e;
    node[n].applied[s] := 0;
    clear node[n].ahead[s];
    clear node[n].claim[s];
    node[n].upto[s] := version_of(e, 0);
    for o: Object do
      if shard_of(o) = s then
        if keeps(EPOCH_FLUSH) then drop_copy(n, o); end;
        node[n].floor[o] := 0;
        if node[n].fetch[o].state != NoFetch then new_attempt(n, o); end;
      end;
    end;
    sort_messages(n);
  end;
end;

procedure learn_token(n: Node; token: Token);
begin
  if keeps(EPOCH_IN_TOKENS) then
    for s: Shard do learn_epoch(n, s, epoch_of(token[s])); end;
  end;
end;

procedure hear_cover(n: Node; s: Shard; k: Count; v: Version);
begin
  if k <= node[n].applied[s] then node[n].upto[s] := newer(node[n].upto[s], v);
  else node[n].claim[s][k] := newer(node[n].claim[s][k], v);
  end;
  for c: Count do
    if node[n].claim[s][c] <= node[n].upto[s] then node[n].claim[s][c] := 0; end;
  end;
end;

procedure apply(n: Node; s: Shard; k: Count);
begin
  if k > node[n].applied[s] then
    node[n].ahead[s][k] := true;
    for c: Count do
      if c = node[n].applied[s] + 1 & node[n].ahead[s][c] | c = k & !keeps(CONTIGUOUS_PREFIX) then
        node[n].applied[s] := c;
      end;
    end;
    for c: Count do
      if c <= node[n].applied[s] then
        node[n].ahead[s][c] := false;
        node[n].upto[s] := newer(node[n].upto[s], node[n].claim[s][c]);
        node[n].claim[s][c] := 0;
      end;
    end;
  end;
end;

-- What every answer of a home tells: its reign, and a cover.
procedure hear(n: Node; m: Message);
begin
  learn_epoch(n, m.shard, m.epoch);
  if m.epoch = node[n].epoch[m.shard] then hear_cover(n, m.shard, m.k, m.upto); end;
end;

function needs(n: Node; s: Shard; v: Version): boolean;
begin
  return !covered(n, s, v) & !exists k: Count do node[n].claim[s][k] >= v end;
end;

function waits_for_cover(n: Node; s: Shard): boolean;
begin
  return exists i: Invocation do
      run[i].state = Sent & run[i].node = n & run[i].incarnation = node[n].incarnation & needs(n, s, run[i].token[s])
      | lives(i) & run[i].node = n & run[i].op = Calling & exists child: Invocation do
          run[child].parent = i & run[child].state = Over & run[child].told & needs(n, s, run[child].token[s])
        end
    end
    | exists o: Object do node[n].fetch[o].state = Held & needs(n, s, node[n].fetch[o].found.token[s]) end;
end;

ruleset n: Node; s: Shard do
  rule "ask a home for a cover"
    node[n].alive & !node[n].refused & keeps(ASK) & waits_for_cover(n, s)
    & !exists x: Slot do
      (is(n, x, AskMsg) | is(n, x, CoversMsg)) & net[n][x].incarnation = node[n].incarnation & net[n][x].shard = s
    end
  ==>
  var m: Message;
  begin
    clear m;
    m.kind := AskMsg;
    m.incarnation := node[n].incarnation;
    m.shard := s;
    m.epoch := node[n].epoch[s];
    post(n, m);
  end;
end;

procedure hear_invalidate(n: Node; m: Message; o: Object);
begin
  hear(n, m);
  if node[n].has[o] & (node[n].copy[o].version < m.version | node[n].copy[o].version = m.version & m.shared) then
    drop_copy(n, o);
  end;
  raise_floor(n, o, m.version);
  apply(n, m.shard, m.k);
end;

-- ---------------------------------------------------------------------------------------------- 8 the home
-- Messages come to the home in charge or to one that was replaced and does not know it; never to one whose epoch is
-- older than what the sender has met.
function reaches(m: Message; e: Epoch): boolean;
begin return m.epoch <= e & e <= reign[m.shard]; end;

procedure forget_member(s: Shard; e: Epoch; n: Node);
begin
  home[s][e].sent[n] := 0;
  for o: Object do home[s][e].sharer[o][n] := false; end;
end;

-- A first message of a new incarnation [16].
procedure meet(s: Shard; e: Epoch; n: Node; incarnation: Incarnation);
begin
  if incarnation > home[s][e].met[n] then
    home[s][e].met[n] := incarnation;
    if keeps(NEW_INCARNATION) then forget_member(s, e, n); end;
  end;
end;

-- [14, 15]
function refuses(s: Shard; e: Epoch; n: Node; incarnation: Incarnation; is_put: boolean): boolean;
begin
  return incarnation < home[s][e].met[n]
    | incarnation <= home[s][e].given_up[n] & (is_put ? keeps(REFUSE_PUTS) : keeps(REFUSE_GIVEN_UP));
end;

procedure send_refusal(n: Node; m: Message; e: Epoch);
var answer: Message;
begin
  clear answer;
  answer.kind := RefusedMsg;
  answer.incarnation := m.incarnation;
  answer.shard := m.shard;
  answer.epoch := e;
  post(n, answer);
end;

procedure send_cover(n: Node; m: Message; e: Epoch);
var answer: Message;
begin
  clear answer;
  answer.kind := CoversMsg;
  answer.incarnation := m.incarnation;
  answer.shard := m.shard;
  answer.epoch := e;
  answer.k := home[m.shard][e].sent[n];
  answer.upto := home[m.shard][e].last;
  post(n, answer);
end;

procedure invalidate(s: Shard; e: Epoch; n: Node; o: Object; v: Version; recalls: boolean);
var m: Message;
begin
  home[s][e].sharer[o][n] := false;
  home[s][e].sent[n] := home[s][e].sent[n] + 1;
  clear m;
  m.kind := InvalidateMsg;
  m.incarnation := home[s][e].met[n];
  m.shard := s;
  m.epoch := e;
  m.object := o;
  m.version := v;
  m.shared := recalls;
  m.k := home[s][e].sent[n];
  m.upto := home[s][e].last;
  m.lost := false;
  post(n, m);
end;

-- A stamp's token: what the writer had seen [12], and the version itself [11].
function stamp(s: Shard; v: Version; w: Data; token: Token): Stamped;
var stamped: Stamped;
begin
  clear stamped;
  stamped.version := v;
  stamped.data := w;
  if keeps(WRITER_TOKEN) then stamped.token := token; end;
  if keeps(OWN_NUMBER) then stamped.token[s] := newer(stamped.token[s], v); end;
  return stamped;
end;

procedure append(s: Shard; w: Data; stamped: Stamped);
begin
  ledger.last[s] := stamped.version;
  ledger.has[of_object[w]] := true;
  ledger.newest[of_object[w]] := stamped;
  ledger.puts[w] := true;
end;

-- Appends, applies, tells the sharers. A deposed home's append is refused [29].
procedure commit(s: Shard; e: Epoch; w: Data; token: Token);
var stamped: Stamped; o: Object;
begin
  o := of_object[w];
  observe_commit(w, home[s][e].last + 1);
  if broken = Nothing then
    stamped := stamp(s, home[s][e].last + 1, w, token);
    if keeps(DURABLE_FIRST) & e = reign[s] then append(s, w, stamped); end;
    home[s][e].last := stamped.version;
    home[s][e].has[o] := true;
    home[s][e].entry[o] := stamped;
    home[s][e].knows[w] := true;
    for n: Node do
      if home[s][e].sharer[o][n] then invalidate(s, e, n, o, stamped.version, false); end;
    end;
  end;
end;

-- What has no entry is read from the store: in the version, and with the token, of what was forgotten [13, 34]. The
-- version that the store's metadata name may be older than the write's.
procedure load(s: Shard; e: Epoch; o: Object);
var loaded: Stamped;
begin
  if !home[s][e].has[o] then
    clear loaded;
    loaded.version := keeps(FORGOTTEN_MARK) ? home[s][e].forgotten : 0;
    loaded.data := store[o].data;
    if keeps(SUMMARY) then loaded.token := home[s][e].summary; end;
    loaded.token[s] := newer(loaded.token[s], loaded.version);
    home[s][e].entry[o] := loaded;
    home[s][e].has[o] := true;
  end;
end;

-- [36]
function can_tell(s: Shard; e: Epoch; o: Object): boolean;
begin return home[s][e].has[o] | epoch_of(store[o].version) <= e | !keeps(STORE_TELLS_EPOCH); end;

procedure home_asked(n: Node; m: Message; e: Epoch);
begin
  if refuses(m.shard, e, n, m.incarnation, false) then send_refusal(n, m, e);
  else
    meet(m.shard, e, n, m.incarnation);
    send_cover(n, m, e);
  end;
end;

procedure home_fetched_from(n: Node; m: Message; e: Epoch; s: Shard; o: Object);
var answer: Message;
begin
  if refuses(s, e, n, m.incarnation, false) then send_refusal(n, m, e);
  else
    meet(s, e, n, m.incarnation);
    load(s, e, o);
    clear answer;
    answer.incarnation := m.incarnation;
    answer.shard := s;
    answer.epoch := e;
    answer.object := o;
    answer.current := m.current;
    answer.k := home[s][e].sent[n];
    answer.upto := home[s][e].last;
    if m.part > 1 & m.version != home[s][e].entry[o].version & keeps(PIN_PARTS) then answer.kind := ChangedMsg;
    else
      if m.shared & keeps(SHARE_ON_FETCH) then home[s][e].sharer[o][n] := true; end;
      answer.kind := FoundMsg;
      answer.part := m.part;
      answer.stamped := home[s][e].entry[o];
    end;
    post(n, answer);
  end;
end;

-- ---------------------------------------------------------------------------------------------- 9 invocations
function dispatches(): boolean;
begin return !calm & (!keeps(RESTART_BARRIER) | forall s: Shard do scheduler.read[s] end); end;

-- The next to be dispatched; 0: none.
function next(): 0..INVOCATIONS;
begin
  for i: Invocation do
    if run[i].state = Waiting then return i; end;
  end;
  return 0;
end;

procedure dispatch(i: Invocation; n: Node);
begin
  run[i].state := Sent;
  run[i].node := n;
  run[i].incarnation := node[n].incarnation;
  run[i].steps := given.steps;
  run[i].token := scheduler.token;
  run[i].must := ended.wrote;
  run[i].seen := ended.seen;
  run[i].past := ended.past;
end;

-- What nobody will look at again is made equal.
procedure wipe(i: Invocation);
begin
  run[i].op := NoOp;
  run[i].object := 1;
  run[i].write := 0;
  run[i].steps := 0;
  run[i].incarnation := 0;
  undefine run[i].node;
  clear run[i].token;
  run[i].parent := 0;
  clear run[i].must;
  clear run[i].seen;
  clear run[i].past;
end;

procedure finish(i: Invocation);
var written: Token;
begin
  if !run[i].told then
    clear written;
    for w: Data do
      if w > 0 & w <= begun & writer[w] = i & acknowledged[w] then
        written[shard_of(of_object[w])] := newer(written[shard_of(of_object[w])], committed[w]);
      end;
    end;
    join(scheduler.token, keeps(ENDS_CARRY_READS) ? run[i].token : written);
    observe_end(i);
  end;
  run[i].state := Over;
  if run[i].parent = 0 then wipe(i); end;
end;

ruleset n: Node do
  rule "dispatch"
    dispatches() & next() != 0 & node[n].alive
  ==>
  begin dispatch(next(), n); end;
end;

-- Its dispatch has arrived at its node, which is of the life it names [2].
function is_at_gate(i: Invocation): boolean;
begin
  return run[i].state = Sent & node[run[i].node].alive
    & (run[i].incarnation = node[run[i].node].incarnation | !keeps(NAMED_INCARNATION));
end;

-- The callee whose end the caller waits for, when it is told; 0: none.
function answered_by(i: Invocation): 0..INVOCATIONS;
begin
  if run[i].op = Calling then
    for callee: Invocation do
      if run[callee].parent = i & run[callee].state = Over & run[callee].told then return callee; end;
    end;
  end;
  return 0;
end;

ruleset i: Invocation do
  rule "begin"
    is_at_gate(i) & (covers(run[i].node, run[i].token) | !keeps(GATE))
  ==>
  begin
    run[i].state := Running;
    run[i].incarnation := node[run[i].node].incarnation;
  end;

  rule "the gate learns of a reign"
    is_at_gate(i) & keeps(EPOCH_IN_TOKENS) & keeps(GATE)
    & exists s: Shard do epoch_of(run[i].token[s]) > node[run[i].node].epoch[s] end
  ==>
  begin learn_token(run[i].node, run[i].token); end;

  rule "end"
    run[i].state = Running & lives(i) & run[i].op = NoOp
  ==>
  begin finish(i); end;

  rule "a callee's answer"
    lives(i) & answered_by(i) != 0
    & (covers(run[i].node, run[answered_by(i)].token) | !keeps(COVER_BEFORE_SHOW) | !keeps(ANSWERS_CARRY))
  ==>
  var callee: Invocation;
  begin
    callee := answered_by(i);
    run[i].op := NoOp;
    if keeps(ANSWERS_CARRY) then join(run[i].token, run[callee].token); end;
    for o: Object do
      run[i].seen[o] := newer(run[i].seen[o], run[callee].seen[o]);
      run[i].past[o] := newer(run[i].past[o], newer(run[callee].past[o], run[callee].seen[o]));
    end;
    wipe(callee);
  end;
end;

ruleset i: Invocation; n: Node do
  rule "call"
    left.calls > 0 & run[i].state = Running & lives(i) & run[i].op = NoOp & run[i].steps > 0
    & dispatches() & next() != 0 & node[n].alive
  ==>
  var callee: Invocation;
  begin
    callee := next();
    left.calls := left.calls - 1;
    run[i].steps := run[i].steps - 1;
    run[i].op := Calling;
    dispatch(callee, n);
    run[callee].parent := i;
    if keeps(CALLS_CARRY) then join(run[callee].token, run[i].token); end;
    for o: Object do
      run[callee].seen[o] := newer(run[callee].seen[o], run[i].seen[o]);
      run[callee].past[o] := newer(run[callee].past[o], newer(run[i].past[o], run[i].seen[o]));
    end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 10 reads
procedure show(i: Invocation; o: Object; shown: Stamped);
begin
  observe(i, o, shown);
  join(run[i].token, shown.token);
  run[i].token[shard_of(o)] := newer(run[i].token[shard_of(o)], shown.version);
end;

ruleset i: Invocation; o: Object do
  rule "read"
    !calm & run[i].state = Running & lives(i) & run[i].op = NoOp & run[i].steps > 0
    & (node[run[i].node].has[o] | node[run[i].node].fetch[o].state = NoFetch | !node[run[i].node].fetch[o].private)
  ==>
  var n: Node;
  begin
    n := run[i].node;
    run[i].steps := run[i].steps - 1;
    if node[n].has[o] then show(i, o, node[n].copy[o]);
    else
      run[i].op := Reading;
      run[i].object := o;
      if node[n].fetch[o].state = NoFetch then
        new_attempt(n, o);
        send_fetch(n, o);
      end;
    end;
  end;
end;

ruleset n: Node; o: Object do
  rule "fetch again"
    node[n].alive & !node[n].refused & node[n].fetch[o].state = Asked
    & !exists x: Slot do
      (is(n, x, FetchMsg) | answers_fetch(net[n][x].kind)) & net[n][x].object = o
      & net[n][x].incarnation = node[n].incarnation & net[n][x].current
    end
  ==>
  begin send_fetch(n, o); end;

  rule "show"
    node[n].alive & node[n].fetch[o].state = Held
    & (covers(n, node[n].fetch[o].found.token) | !keeps(COVER_BEFORE_SHOW))
  ==>
  var f: Fetch;
  begin
    f := node[n].fetch[o];
    for i: Invocation do
      if lives(i) & run[i].node = n & run[i].op = Reading & run[i].object = o then
        show(i, o, f.found);
        run[i].op := NoOp;
        run[i].object := 1;
      end;
    end;
    if !f.private & (f.found.version >= node[n].floor[o] | !keeps(FLOOR)) then
      node[n].has[o] := true;
      node[n].copy[o] := f.found;
    end;
    end_attempt(n, o);
    settle_floor(n, o);
  end;
end;

procedure hear_changed(n: Node; m: Message; o: Object);
begin
  hear(n, m);
  if m.current & node[n].fetch[o].state = Asked then new_attempt(n, o); end;
end;

-- An answer may be the first to tell of a reign: that began the attempt anew, and the answer is as good as one to it.
procedure hear_found(n: Node; m: Message; o: Object);
begin
  hear(n, m);
  if node[n].fetch[o].state = Asked then
    if m.stamped.version < node[n].floor[o] & keeps(SERVE_FLOOR) then
      if !keeps(FLOOR) & !node[n].fetch[o].private then
        node[n].has[o] := true;
        node[n].copy[o] := m.stamped;
      end;
      new_attempt(n, o);
    elsif m.part = 1 then
      node[n].fetch[o].found := m.stamped;
      if PARTS = 1 then node[n].fetch[o].state := Held;
      else
        node[n].fetch[o].part := PARTS;
        send_fetch(n, o);
      end;
    elsif node[n].fetch[o].part = m.part then
      if m.stamped.data != node[n].fetch[o].found.data then node[n].fetch[o].found.mixed := true; end;
      node[n].fetch[o].state := Held;
    end;
    if node[n].fetch[o].state = Held then learn_token(n, node[n].fetch[o].found.token); end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 11 writes
procedure send_put(i: Invocation);
var m: Message; n: Node;
begin
  n := run[i].node;
  clear m;
  m.kind := PutMsg;
  m.incarnation := run[i].incarnation;
  m.object := run[i].object;
  m.shard := shard_of(m.object);
  m.epoch := node[n].epoch[m.shard];
  m.write := run[i].write;
  m.stamped.token := run[i].token;
  post(n, m);
end;

procedure answer_put(n: Node; m: Message; e: Epoch);
var answer: Message; o: Object;
begin
  o := m.object;
  clear answer;
  answer.kind := WrittenMsg;
  answer.incarnation := m.incarnation;
  answer.shard := m.shard;
  answer.epoch := e;
  answer.object := o;
  answer.write := m.write;
  answer.k := home[m.shard][e].sent[n];
  answer.upto := home[m.shard][e].last;
  answer.version := committed[m.write];
  answer.shared := home[m.shard][e].has[o] & home[m.shard][e].entry[o].data = m.write;
  if answer.shared then
    answer.stamped := home[m.shard][e].entry[o];
    home[m.shard][e].sharer[o][n] := true;
  end;
  post(n, answer);
end;

ruleset i: Invocation; o: Object do
  rule "write"
    !calm & run[i].state = Running & lives(i) & run[i].op = NoOp & run[i].steps > 0 & i > given.read_only & begun < given.writes
  ==>
  var n: Node;
  begin
    n := run[i].node;
    run[i].steps := run[i].steps - 1;
    begun := begun + 1;
    of_object[begun] := o;
    writer[begun] := i;
    for p: Object do past_of[begun][p] := newer(run[i].past[p], run[i].seen[p]); end;
    run[i].op := Writing;
    run[i].object := o;
    run[i].write := begun;
    if keeps(WRITE_TAKES_COPY) then
      drop_copy(n, o);
      if node[n].fetch[o].state != NoFetch then node[n].fetch[o].private := true; end;
    end;
    send_put(i);
  end;
end;

-- Or its answer; or word of a new reign, after which it is sent again.
function put_is_under_way(n: Node; w: Data): boolean;
begin
  return exists x: Slot do
    net[n][x].incarnation = node[n].incarnation
    & (is(n, x, WrittenMsg) & net[n][x].write = w
      | is(n, x, PutMsg) & net[n][x].write = w & net[n][x].epoch = node[n].epoch[net[n][x].shard]
      | is(n, x, CoversMsg) & net[n][x].shard = shard_of(of_object[w])
        & net[n][x].epoch > node[n].epoch[net[n][x].shard])
  end;
end;

ruleset i: Invocation do
  rule "put again"
    lives(i) & run[i].op = Writing & !node[run[i].node].refused & !put_is_under_way(run[i].node, run[i].write)
    & (keeps(NEVER_WAIT) | committed[run[i].write] = 0)
  ==>
  begin send_put(i); end;
end;

procedure home_put_to(n: Node; m: Message; e: Epoch; s: Shard);
begin
  if refuses(s, e, n, m.incarnation, true) then send_refusal(n, m, e);
  else
    meet(s, e, n, m.incarnation);
    if e > m.epoch & keeps(PUTS_OF_THIS_EPOCH) then send_cover(n, m, e);
    elsif home[s][e].knows[m.write] & keeps(REQUEST_IDS) then answer_put(n, m, e);
    else
      home[s][e].sharer[m.object][n] := false;
      commit(s, e, m.write, m.stamped.token);
      if keeps(NEVER_WAIT) then answer_put(n, m, e); end;
    end;
  end;
end;

-- Without [44]: when every sharer has applied what it was sent.
ruleset i: Invocation do
  rule "a late acknowledgement"
    !keeps(NEVER_WAIT) & lives(i) & run[i].op = Writing & committed[run[i].write] != 0
    & !exists x: Slot do is(run[i].node, x, WrittenMsg) & net[run[i].node][x].write = run[i].write end
    & forall other: Node do
      home[shard_of(run[i].object)][reign[shard_of(run[i].object)]].sent[other] = 0
      | node[other].alive & node[other].applied[shard_of(run[i].object)]
        = home[shard_of(run[i].object)][reign[shard_of(run[i].object)]].sent[other]
    end
  ==>
  var m: Message; n: Node;
  begin
    n := run[i].node;
    clear m;
    m.incarnation := run[i].incarnation;
    m.object := run[i].object;
    m.shard := shard_of(m.object);
    m.write := run[i].write;
    answer_put(n, m, reign[m.shard]);
  end;
end;

procedure hear_written(n: Node; m: Message; o: Object);
var open: boolean;
begin
  hear(n, m);
  open := false;
  raise_floor(n, o, m.version);
  for i: Invocation do
    if lives(i) & run[i].op = Writing & run[i].write = m.write then
      open := true;
      acknowledged[m.write] := true;
      run[i].op := NoOp;
      run[i].object := 1;
      run[i].write := 0;
      run[i].token[m.shard] := newer(run[i].token[m.shard], m.version);
      run[i].seen[o] := newer(run[i].seen[o], m.version);
      for p: Object do run[i].past[p] := newer(run[i].past[p], past_of[m.write][p]); end;
      if run[i].state = Killed then finish(i); end;
    end;
  end;
  -- Kept only if no newer one is known here, and, as all that is kept, covered.
  if open & m.shared & !writing(n, o) & (m.version >= node[n].floor[o] | !keeps(ACK_FLOOR)) then
    if covers(n, m.stamped.token) | !keeps(COVER_BEFORE_SHOW) then
      node[n].has[o] := true;
      node[n].copy[o] := m.stamped;
    end;
  end;
  settle_floor(n, o);
end;

-- Messages arrive in any order.
ruleset n: Node; x: Slot do
  rule "a node hears"
    net[n][x].kind != NoMsg & !to_home(net[n][x].kind) & !net[n][x].lost
  ==>
  var m: Message;
  begin
    m := net[n][x];
    take(n, x);
    switch m.kind
      case CoversMsg: hear(n, m);
      case RefusedMsg: node[n].refused := true;
      case InvalidateMsg: hear_invalidate(n, m, m.object);
      case ChangedMsg: hear_changed(n, m, m.object);
      case FoundMsg: hear_found(n, m, m.object);
      case WrittenMsg: hear_written(n, m, m.object);
    end;
  end;
end;

-- A deposed home takes no put: the ledger refuses it [29].
ruleset n: Node; x: Slot; e: Epoch do
  rule "a home hears"
    to_home(net[n][x].kind) & reaches(net[n][x], e)
    & (is(n, x, PutMsg) -> e = reign[net[n][x].shard] | !keeps(LEDGER_FENCE))
    & (is(n, x, FetchMsg) -> can_tell(net[n][x].shard, e, net[n][x].object))
  ==>
  var m: Message;
  begin
    m := net[n][x];
    take(n, x);
    switch m.kind
      case AskMsg: home_asked(n, m, e);
      case FetchMsg: home_fetched_from(n, m, e, m.shard, m.object);
      case PutMsg: home_put_to(n, m, e, m.shard);
    end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 12 the store
-- Homes push what they have, a deposed one too: the store knows no epochs. What is pushed may be forgotten.
ruleset s: Shard; e: Epoch; o: Object do
  rule "push"
    given.pushes = 1 & !calm & e <= reign[s] & shard_of(o) = s & home[s][e].has[o]
    & (home[s][e].entry[o].version > store[o].version | !keeps(PUSH_FORWARD))
    & home[s][e].entry[o].data != store[o].data
  ==>
  begin
    store[o].version := home[s][e].entry[o].version;
    store[o].data := home[s][e].entry[o].data;
  end;

  rule "forget"
    !calm & left.forgets > 0 & e <= reign[s] & shard_of(o) = s & home[s][e].has[o]
    & home[s][e].entry[o].data = store[o].data
  ==>
  begin
    left.forgets := left.forgets - 1;
    join(home[s][e].summary, home[s][e].entry[o].token);
    home[s][e].forgotten := newer(home[s][e].forgotten, home[s][e].entry[o].version);
    if keeps(RECALL) then
      for n: Node do
        if home[s][e].sharer[o][n] then invalidate(s, e, n, o, home[s][e].entry[o].version, true); end;
      end;
    end;
    for n: Node do home[s][e].sharer[o][n] := false; end;
    home[s][e].has[o] := false;
    clear home[s][e].entry[o];
  end;
end;

ruleset w: Data do
  rule "trim"
    !calm & left.trims > 0 & w > 0 & w <= begun & ledger.puts[w]
    & (committed[store[of_object[w]].data] >= committed[w] | !keeps(TRIM_PUSHED))
    & (acknowledged[w] | !keeps(TRIM_SETTLED))
  ==>
  begin
    left.trims := left.trims - 1;
    ledger.puts[w] := false;
    if ledger.newest[of_object[w]].data = w then
      ledger.has[of_object[w]] := false;
      clear ledger.newest[of_object[w]];
    end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 13 faults
ruleset n: Node; x: Slot do
  rule "lose"
    !calm & left.losses > 0 & net[n][x].kind != NoMsg & !net[n][x].lost
  ==>
  var m: Message;
  begin
    left.losses := left.losses - 1;
    m := net[n][x];
    take(n, x);
    -- Its home has an invalidation until it is applied.
    if m.kind = InvalidateMsg then
      m.lost := true;
      post(n, m);
    end;
  end;

  rule "invalidate again"
    net[n][x].lost & keeps(RESEND)
  ==>
  begin
    net[n][x].lost := false;
    sort_messages(n);
  end;

  rule "double"
    !calm & left.duplicates > 0 & net[n][x].kind != NoMsg
  ==>
  begin
    left.duplicates := left.duplicates - 1;
    post(n, net[n][x]);
  end;
end;

ruleset n: Node; o: Object do
  rule "evict"
    !calm & left.evictions > 0 & node[n].has[o]
  ==>
  begin
    left.evictions := left.evictions - 1;
    drop_copy(n, o);
  end;
end;

-- The end of a life, and of what ran in it. Nobody is told yet.
procedure end_life(n: Node);
begin
  for i: Invocation do
    if lives(i) & run[i].node = n then
      run[i].state := Over;
      run[i].op := NoOp;
      run[i].object := 1;
      run[i].write := 0;
      run[i].steps := 0;
      clear run[i].token;
      clear run[i].must;
      if run[i].told then wipe(i); end;
    end;
  end;
end;

procedure empty_node(n: Node);
begin
  clear node[n].has;
  clear node[n].copy;
  clear node[n].fetch;
  clear node[n].floor;
  clear node[n].applied;
  clear node[n].ahead;
  clear node[n].upto;
  clear node[n].claim;
  node[n].refused := false;
  for s: Shard do node[n].epoch[s] := 1; end;
end;

ruleset n: Node do
  rule "crash"
    !calm & left.crashes > 0 & node[n].alive
  ==>
  begin
    left.crashes := left.crashes - 1;
    end_life(n);
    empty_node(n);
    node[n].alive := false;
    sort_messages(n);
  end;

  rule "restart"
    !calm & !node[n].alive & node[n].incarnation < INCARNATIONS
  ==>
  begin
    node[n].alive := true;
    node[n].incarnation := node[n].incarnation + 1;
  end;

  rule "join anew"
    node[n].alive & node[n].refused & node[n].incarnation < INCARNATIONS
  ==>
  begin
    if keeps(END_AT_REJOIN) then end_life(n); end;
    empty_node(n);
    node[n].incarnation := node[n].incarnation + 1;
    if !keeps(END_AT_REJOIN) then
      for i: Invocation do
        if (run[i].state = Running | run[i].state = Killed) & run[i].node = n
          & run[i].incarnation = node[n].incarnation - 1 then run[i].incarnation := node[n].incarnation; end;
      end;
    end;
    sort_messages(n);
  end;
end;

procedure give_up(s: Shard; n: Node; incarnation: Incarnation);
begin
  if incarnation > home[s][reign[s]].given_up[n] then
    home[s][reign[s]].given_up[n] := incarnation;
    ledger.fence[s][n] := incarnation;
  end;
  if home[s][reign[s]].met[n] <= incarnation then forget_member(s, reign[s], n); end;
end;

ruleset s: Shard; n: Node do
  rule "give up"
    !calm & left.suspicions > 0 & node[n].alive & node[n].incarnation > home[s][reign[s]].given_up[n]
    & node[n].incarnation < INCARNATIONS
  ==>
  begin
    left.suspicions := left.suspicions - 1;
    give_up(s, n, node[n].incarnation);
  end;
end;

-- A new home takes the epoch in the ledger, and begins with what is written there.
procedure replace(s: Shard);
var e: Epoch; old: Version;
begin
  e := reign[s] + 1;
  old := ledger.last[s];
  left.replaced := left.replaced - 1;
  home[s][e].last := version_of(e, RESETS = 1 ? 0 : old % BASE);
  home[s][e].forgotten := home[s][e].last;
  home[s][e].summary[s] := home[s][e].last;
  if keeps(NEW_HOME_SUMMARY) then
    for t: Shard do
      if t != s then home[s][e].summary[t] := home[t][reign[t]].last; end;
    end;
  end;
  for o: Object do
    if shard_of(o) = s & ledger.has[o] then
      home[s][e].has[o] := true;
      home[s][e].entry[o] := ledger.newest[o];
    end;
  end;
  home[s][e].knows := ledger.puts;
  if keeps(FENCES_LAST) then home[s][e].given_up := ledger.fence[s]; end;
  reign[s] := e;
end;

ruleset s: Shard do
  rule "replace a home"
    !calm & left.replaced > 0 & reign[s] < EPOCHS
  ==>
  begin replace(s); end;
end;

ruleset n: Node; x: Slot do
  rule "replace a home whose append it does not hear of"
    !calm & left.replaced > 0 & is(n, x, PutMsg) & reign[net[n][x].shard] < EPOCHS
    & reaches(net[n][x], reign[net[n][x].shard])
    & !refuses(net[n][x].shard, reign[net[n][x].shard], n, net[n][x].incarnation, true)
    & (reign[net[n][x].shard] = net[n][x].epoch | !keeps(PUTS_OF_THIS_EPOCH))
    & !home[net[n][x].shard][reign[net[n][x].shard]].knows[net[n][x].write]
  ==>
  var m: Message; v: Version;
  begin
    m := net[n][x];
    take(n, x);
    v := home[m.shard][reign[m.shard]].last + 1;
    observe_commit(m.write, v);
    append(m.shard, m.write, stamp(m.shard, v, m.write, m.stamped.token));
    replace(m.shard);
  end;
end;

rule "the scheduler crashes"
  !calm & left.scheduler_crashes > 0
==>
begin
  left.scheduler_crashes := left.scheduler_crashes - 1;
  clear scheduler;
end;

ruleset s: Shard do
  rule "the scheduler reads a home"
    !calm & !scheduler.read[s]
  ==>
  begin
    scheduler.read[s] := true;
    scheduler.token[s] := newer(scheduler.token[s], home[s][reign[s]].last);
  end;
end;

ruleset i: Invocation do
  rule "kill"
    !calm & left.kills > 0 & run[i].state = Running & lives(i) & (run[i].op = Writing | run[i].op = Reading)
  ==>
  begin
    left.kills := left.kills - 1;
    if run[i].op = Writing & keeps(FATE_OF_PUTS) then run[i].state := Killed;
    else finish(i);
    end;
  end;
end;

-- Lost: crashed, begun anew, or given up by a home.
function is_lost(n: Node; incarnation: Incarnation): boolean;
begin
  return incarnation < node[n].incarnation | !node[n].alive
    | exists s: Shard do home[s][reign[s]].given_up[n] >= incarnation end;
end;

function is_untold(i: Invocation; n: Node; incarnation: Incarnation): boolean;
begin
  return run[i].state != Waiting & !run[i].told & run[i].node = n & run[i].incarnation = incarnation;
end;

ruleset n: Node; incarnation: Incarnation; s: Shard do
  rule "fence a lost node and read the home"
    !calm & incarnation > 0 & scheduler.lost[n][s] < incarnation & is_lost(n, incarnation)
    & exists i: Invocation do is_untold(i, n, incarnation) end
  ==>
  begin
    scheduler.lost[n][s] := incarnation;
    if keeps(FENCE_FIRST) then give_up(s, n, incarnation); end;
    if keeps(READ_AFTER_FENCE) then
      scheduler.token[s] := newer(scheduler.token[s], home[s][reign[s]].last);
    end;
  end;
end;

ruleset n: Node; incarnation: Incarnation do
  rule "declare ended"
    !calm & incarnation > 0 & forall s: Shard do scheduler.lost[n][s] >= incarnation end
    & exists i: Invocation do is_untold(i, n, incarnation) end
  ==>
  begin
    for i: Invocation do
      if is_untold(i, n, incarnation) then
        observe_end(i);
        join(run[i].token, scheduler.token);
        if run[i].state = Sent & keeps(NAMED_INCARNATION) & (!node[n].alive | incarnation < node[n].incarnation) then
          run[i].state := Over;
        end;
        if run[i].state = Over & run[i].parent = 0 then wipe(i); end;
      end;
    end;
  end;
end;

-- ---------------------------------------------------------------------------------------------- 14 clients outside
ruleset o: Object do
  rule "a put from outside"
    !calm & left.outside_writes > 0 & outside.state = Idle & begun < given.writes
  ==>
  begin
    left.outside_writes := left.outside_writes - 1;
    begun := begun + 1;
    of_object[begun] := o;
    outside.write := begun;
    outside.state := Committed;
    commit(shard_of(o), reign[shard_of(o)], begun, scheduler.token);
  end;
end;

rule "hand over"
  !calm & outside.state = Committed & keeps(HAND_OVER)
==>
var s: Shard;
begin
  s := shard_of(of_object[outside.write]);
  scheduler.token[s] := newer(scheduler.token[s], committed[outside.write]);
  outside.state := Handed;
end;

rule "acknowledge outside"
  !calm & (outside.state = Handed | outside.state = Committed & !keeps(HAND_OVER))
==>
var o: Object;
begin
  o := of_object[outside.write];
  acknowledged[outside.write] := true;
  ended.wrote[o] := newer(ended.wrote[o], committed[outside.write]);
  outside.seen[o] := newer(outside.seen[o], committed[outside.write]);
  outside.state := Idle;
  outside.write := 0;
end;

-- By the door of any node, which asks a home that it takes for the one in charge.
ruleset n: Node; o: Object; e: Epoch do
  rule "a get from outside"
    !calm & left.outside_reads > 0 & node[n].alive
    & node[n].epoch[shard_of(o)] <= e & e <= reign[shard_of(o)]
    & (e = reign[shard_of(o)] | !keeps(CHECK_EPOCH))
    & can_tell(shard_of(o), e, o)
  ==>
  var w: Data;
  begin
    left.outside_reads := left.outside_reads - 1;
    if node[n].has[o] & !keeps(OUTSIDE_ASKS_HOME) then w := node[n].copy[o].data;
    elsif home[shard_of(o)][e].has[o] then w := home[shard_of(o)][e].entry[o].data;
    else w := store[o].data;
    end;
    if committed[w] < newer(outside.seen[o], ended.wrote[o]) then break(P1); end;
    outside.seen[o] := newer(outside.seen[o], committed[w]);
  end;
end;

-- ---------------------------------------------------------------------------------------------- 15 promises
startstate
begin
  clear node; clear home; clear ledger; clear store; clear scheduler; clear left; clear ended;
  clear reign; clear of_object; clear writer; clear committed; clear acknowledged; clear past_of; clear outside;
  clear net;
  given.omitted := OMIT;
  given.steps := STEPS;
  given.writes := WRITES;
  given.read_only := READ_ONLY;
  given.warm := WARM;
  given.pushes := PUSHES;
  given.finish := FINISH;
  calm := false;
  begun := 0;
  broken := Nothing;
  for n: Node do
    empty_node(n);
    node[n].alive := true;
    node[n].incarnation := 1;
    for o: Object do node[n].has[o] := given.warm = 1; end;
  end;
  for s: Shard do
    scheduler.read[s] := true;
    for o: Object do
      if shard_of(o) = s then
        home[s][1].has[o] := true;
        for n: Node do home[s][1].sharer[o][n] := given.warm = 1; end;
      end;
    end;
    for n: Node do home[s][1].met[n] := given.warm; end;
  end;
  for i: Invocation do
    run[i].state := Waiting;
    run[i].told := false;
    wipe(i);
  end;
  left.replaced := REPLACED;
  left.crashes := CRASHES;
  left.suspicions := SUSPICIONS;
  left.scheduler_crashes := SCHEDULER_CRASHES;
  left.kills := KILLS;
  left.losses := LOSSES;
  left.duplicates := DUPLICATES;
  left.evictions := EVICTIONS;
  left.forgets := FORGETS;
  left.trims := TRIMS;
  left.calls := CALLS;
  left.outside_writes := OUTSIDE_WRITES;
  left.outside_reads := OUTSIDE_READS;
end;

invariant "P1: what is dispatched after an end sees what was written before it" broken != P1;
invariant "P2: what is shown is one version's content" broken != P2;
invariant "P3: writes are ordered, and each takes place once" broken != P3;
invariant "P4: reads are monotonic along a chain" broken != P4;
invariant "P6: who reads a version sees what its writer had seen" broken != P6;

-- What the home in charge would show, were it asked now.
invariant "P5: no acknowledged put is lost"
  forall w: Data do
    w > 0 & w <= begun & acknowledged[w] ->
      committed[home[shard_of(of_object[w])][reign[shard_of(of_object[w])]].has[of_object[w]]
        ? home[shard_of(of_object[w])][reign[shard_of(of_object[w])]].entry[of_object[w]].data
        : store[of_object[w]].data] >= committed[w]
  end;

rule "faults and new work end"
  given.finish = 1 & !calm
==>
begin calm := true; end;

-- From every state, if no fault and no new work comes any more.
liveness "L1: a put of a live node completes"
  given.finish = 0 | calm & forall i: Invocation do lives(i) -> run[i].op != Writing end;

liveness "L2: what a live node has begun can finish"
  given.finish = 0 | calm & forall i: Invocation do
    !lives(i) & !(run[i].state = Sent & node[run[i].node].alive & run[i].incarnation = node[run[i].node].incarnation)
  end;
