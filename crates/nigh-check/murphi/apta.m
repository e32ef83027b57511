-- The coherence protocol of Apta (DSN 2023), for rumur (Murphi): one object, its memory server, its compute servers.
--
-- Written from the paper's tables, not from its authors' model, whose types rumur does not read. As published it checks
-- that no request waits for ever and that queues do not overflow; it has no data and no failing server. Here constants
-- add these, and what Nigh does instead. Sections: 1 constants, 2 types and state, 3 compute servers, 4 the memory
-- server, 5 faults, 6 properties.

-- ---------------------------------------------------------------------------------------------- 1 constants
const
  SERVERS: 3;
  PUTS: 0;                 -- 0: puts without end, all alike, as published; else so many, numbered
  CRASHES: 0;              -- of compute servers
  REPLACES: 1;             -- 1: the memory server may drop an entry, which invalidates its copies
  RACE_FREE: 0;            -- 1: no get or put begins while another is under way, as the paper assumes
  SCHEDULER: 0;            -- 1: only a running function gets and puts, and none begins where an invalidation is pending
  TRACKED: 0;              -- 1: check that whoever has a copy is known to have it
  DATA: 0;                 -- 1: check what copies hold
  HITS: 0;                 -- 1: check that a hit shows the last acknowledged put
  -- What mends it.
  ONE_CHANNEL: 0;          -- 1: all that goes to a server goes by one queue
  PENDING_SETS: 0;         -- 1: puts are taken while invalidations are pending
  FENCES: 0;               -- 1: what a dead server owes is struck off
  QUEUE: 6;

-- ---------------------------------------------------------------------------------------------- 2 types and state
type
  Server: scalarset(SERVERS);
  Value: 0..PUTS;
  Place: 0..QUEUE - 1;
  Length: 0..QUEUE;
  -- Of a copy: none, loading, shared, storing without and with a copy.
  CopyState: enum { I, I_load, S, I_store, S_store };
  -- Of the entry: none, shared, shared with acknowledgements pending, being replaced.
  EntryState: enum { E_I, E_S, E_SA, E_SI };
  Kind: enum { GetRequest, PutRequest, GetAck, PutAck, Inv };
  Message: record kind: Kind; value: Value; end;
  Queue: record length: Length; at: array [Place] of Message; end;

var
  server: array [Server] of record
    alive: boolean;
    state: CopyState;
    value: Value;
    running: boolean;
  end;
  requests: array [Server] of Queue;         -- to the memory server
  answers: array [Server] of Queue;          -- from it: acknowledgements, and invalidations because of puts
  forwards: array [Server] of Queue;         -- from it: invalidations because of replacements
  inv_acks: array [Server] of Length;        -- to it, by a queue of their own
  entry: record
    state: EntryState;
    sharer: array [Server] of boolean;
    owes: array [Server] of Length;          -- acknowledgements of invalidations
  end;
  memory: Value;
  begun: Value;                              -- puts numbered so far
  acknowledged: Value;                       -- the newest whose putter knows
  crashes_left: 0..CRASHES;
  stale_hit: boolean;

procedure send(var queue: Queue; kind: Kind; value: Value);
begin
  assert queue.length < QUEUE "no queue overflows";
  queue.at[queue.length].kind := kind;
  queue.at[queue.length].value := value;
  queue.length := queue.length + 1;
end;

procedure take(var queue: Queue);
begin
  for p: Place do
    if p + 1 < queue.length then queue.at[p] := queue.at[p + 1]; end;
  end;
  queue.length := queue.length - 1;
  undefine queue.at[queue.length];
end;

function waits(s: Server): boolean;
begin return server[s].state = I_load | server[s].state = I_store | server[s].state = S_store; end;

function may_begin(s: Server): boolean;
begin
  return server[s].alive & !waits(s) & (SCHEDULER = 1 -> server[s].running)
    & (RACE_FREE = 1 -> !exists other: Server do server[other].alive & waits(other) end);
end;

-- ---------------------------------------------------------------------------------------------- 3 compute servers
ruleset s: Server do
  rule "a function begins"
    SCHEDULER = 1 & server[s].alive & !server[s].running & entry.owes[s] = 0
  ==>
  begin server[s].running := true; end;

  rule "a function ends"
    server[s].running & server[s].alive & !waits(s)
  ==>
  begin server[s].running := false; end;

  rule "get"
    may_begin(s) & server[s].state = I & requests[s].length = 0
  ==>
  begin
    server[s].state := I_load;
    send(requests[s], GetRequest, 0);
  end;

  rule "hit"
    HITS = 1 & may_begin(s) & server[s].state = S & server[s].value < acknowledged & !stale_hit
  ==>
  begin stale_hit := true; end;

  rule "put"
    may_begin(s) & requests[s].length = 0 & (PUTS = 0 | begun < PUTS)
  ==>
  begin
    if PUTS > 0 then begun := begun + 1; end;
    server[s].state := server[s].state = S ? S_store : I_store;
    server[s].value := begun;
    send(requests[s], PutRequest, begun);
  end;

  rule "evict"
    server[s].alive & server[s].state = S
  ==>
  begin
    server[s].state := I;
    server[s].value := 0;
  end;
end;

procedure invalidate(s: Server);
begin
  if server[s].state = S then
    server[s].state := I;
    server[s].value := 0;
  elsif server[s].state = S_store then server[s].state := I_store;
  end;
  assert inv_acks[s] < QUEUE "no queue overflows";
  inv_acks[s] := inv_acks[s] + 1;
end;

ruleset s: Server do
  rule "an answer"
    server[s].alive & answers[s].length > 0
  ==>
  var m: Message;
  begin
    m := answers[s].at[0];
    take(answers[s]);
    switch m.kind
      case GetAck:
        server[s].state := S;
        server[s].value := m.value;
      case PutAck:
        server[s].state := S;
        acknowledged := m.value > acknowledged ? m.value : acknowledged;
      case Inv: invalidate(s);
    end;
  end;

  rule "a forward"
    server[s].alive & forwards[s].length > 0
  ==>
  begin
    take(forwards[s]);
    invalidate(s);
  end;
end;

-- ---------------------------------------------------------------------------------------------- 4 the memory server
function all_acknowledged(): boolean;
begin return forall s: Server do entry.owes[s] = 0 end; end;

procedure settle();
begin
  if all_acknowledged() then
    if entry.state = E_SA then entry.state := E_S;
    elsif entry.state = E_SI then entry.state := E_I;
    end;
  end;
end;

ruleset s: Server do
  rule "serve a get"
    requests[s].length > 0 & requests[s].at[0].kind = GetRequest & entry.state != E_SI
  ==>
  begin
    take(requests[s]);
    if entry.state = E_I then entry.state := E_S; end;
    entry.sharer[s] := true;
    send(answers[s], GetAck, memory);
  end;

  -- The putter is acknowledged at once; others are invalidated by the same queue.
  rule "serve a put"
    requests[s].length > 0 & requests[s].at[0].kind = PutRequest
    & (entry.state = E_I | entry.state = E_S | entry.state = E_SA & PENDING_SETS = 1)
  ==>
  begin
    memory := requests[s].at[0].value;
    take(requests[s]);
    for other: Server do
      if other != s & entry.sharer[other] then
        send(answers[other], Inv, 0);
        entry.owes[other] := entry.owes[other] + 1;
        entry.sharer[other] := false;
      end;
    end;
    entry.sharer[s] := true;
    entry.state := all_acknowledged() ? E_S : E_SA;
    send(answers[s], PutAck, memory);
  end;

  rule "an acknowledgement"
    inv_acks[s] > 0
  ==>
  begin
    inv_acks[s] := inv_acks[s] - 1;
    if entry.owes[s] > 0 then entry.owes[s] := entry.owes[s] - 1; end;
    settle();
  end;
end;

rule "replace"
  REPLACES = 1 & entry.state = E_S
==>
begin
  for s: Server do
    if entry.sharer[s] then
      if ONE_CHANNEL = 1 then send(answers[s], Inv, 0); else send(forwards[s], Inv, 0); end;
      entry.owes[s] := entry.owes[s] + 1;
      entry.sharer[s] := false;
    end;
  end;
  entry.state := E_SI;
  settle();
end;

-- ---------------------------------------------------------------------------------------------- 5 faults
procedure empty(var queue: Queue);
begin
  undefine queue;
  queue.length := 0;
end;

ruleset s: Server do
  rule "crash"
    crashes_left > 0 & server[s].alive
  ==>
  begin
    crashes_left := crashes_left - 1;
    server[s].alive := false;
    server[s].state := I;
    server[s].value := 0;
    server[s].running := false;
    inv_acks[s] := 0;
  end;

  rule "a dead server loses what comes"
    !server[s].alive & (answers[s].length > 0 | forwards[s].length > 0)
  ==>
  begin
    empty(answers[s]);
    empty(forwards[s]);
  end;

  rule "fence"
    FENCES = 1 & !server[s].alive & (entry.owes[s] > 0 | entry.sharer[s])
  ==>
  begin
    entry.owes[s] := 0;
    entry.sharer[s] := false;
    settle();
  end;
end;

-- ---------------------------------------------------------------------------------------------- 6 properties
startstate
begin
  for s: Server do
    server[s].alive := true;
    server[s].state := I;
    server[s].value := 0;
    server[s].running := false;
    empty(requests[s]);
    empty(answers[s]);
    empty(forwards[s]);
    inv_acks[s] := 0;
    entry.sharer[s] := false;
    entry.owes[s] := 0;
  end;
  entry.state := E_I;
  memory := 0;
  begun := 0;
  acknowledged := 0;
  crashes_left := CRASHES;
  stale_hit := false;
end;

function quiet(): boolean;
begin
  return (entry.state = E_I | entry.state = E_S)
    & forall s: Server do
      requests[s].length = 0 & answers[s].length = 0 & forwards[s].length = 0 & inv_acks[s] = 0 & !waits(s)
    end;
end;

invariant "tracked: at rest, whoever has a copy is known to"
  TRACKED = 1 & quiet() -> forall s: Server do server[s].state = S -> entry.sharer[s] end;

invariant "data: at rest, a copy is what the memory holds"
  DATA = 1 & quiet() -> forall s: Server do server[s].state = S -> server[s].value = memory end;

invariant "hits: a hit shows the last acknowledged put"
  !stale_hit;

liveness "answered: no request of a live server waits for ever"
  forall s: Server do server[s].alive -> !waits(s) end;
