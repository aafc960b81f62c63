/* The sleep protocol of ipc/ring.h and ipc/doorbell.h, to be searched exhaustively by SPIN.
 *
 * One writer and one reader in two processes of a machine with total store order (x86): a store waits
 * in its process's store buffer, first in first out, until it reaches memory at some later moment; a
 * load looks at memory. (Neither side ever loads a word that it stores, so there is no forwarding.) A
 * seq_cst store is a store after which its process goes on once the buffer is empty, which is what
 * the compilers' XCHG does, and so does a store with a fence behind it (ServerSession::flush_all(), whose
 * fence is one for several rings); a relaxed store is a store alone. The doorbell is the kernel's and needs
 * no buffer; that its system calls would empty the buffer is not assumed.
 *
 * Searched: every order of steps for kRecords records through a ring of kSlots slots. Searched for:
 *   - an end in which somebody waits for ever: a lost wake-up, records unread (invalid end state)
 *   - a record read twice, too early, torn by the next lap, or out of order (the reader's assert)
 *   - a writer that a full doorbell stops (invalid end state, with -DHOSTILE)
 *
 * The steps' names are those of the argument in ipc/ring.h. Beside it, as the test runs them:
 *   -DEVENT_LOOP     the reader never goes back to awake: Connection::arm_for_event_loop()
 *   -DHOSTILE        the reader writes what it likes and leaves the bell alone
 * and, each of which has to fail:
 *   -DNO_ORDER       both seq_cst stores are stores alone; -DNO_WRITER_ORDER, -DNO_READER_ORDER: one
 *   -DNO_RECHECK     the reader sleeps without R2
 *   -DOLD_VALUE      each sleep has the same odd value
 *   -DLATE_CLEAR     the doorbell is emptied after R2
 *   -DEARLY_HEAD     the reader frees a slot before it has copied it
 *   -DBLOCKING_BELL  the doorbell is rung by a write() that waits for room (with -DHOSTILE)
 */

#define kRecords 4
#define kSlots 2    /* of the ring; a record takes one */
#define kBuffered 2 /* entries of a store buffer */
#define kBells 2    /* that the doorbell counts; further ones change nothing */
#define kOtherWakes 2 /* times the reader wakes for something other than the doorbell */

#ifdef NO_ORDER
#define NO_WRITER_ORDER
#define NO_READER_ORDER
#endif

/* Memory, a byte a word. The 64-bit words of the code never come round; nor do these. */
#define kTail kSlots
#define kHead (kSlots + 1)
#define kWake (kSlots + 2)
byte memory[kSlots + 3];
byte bells; /* that the eventfd counts */

chan writer_buffer = [kBuffered] of { byte, byte }; /* address, value */
chan reader_buffer = [kBuffered] of { byte, byte };

/* The hardware: lets the oldest store of a buffer reach memory. */
active proctype hardware() {
  byte address, value;
end:
  do
  :: atomic { writer_buffer ? address, value -> memory[address] = value }
  :: atomic { reader_buffer ? address, value -> memory[address] = value }
  od
}

#define STORE(buffer, address, value) buffer ! address, value
#define FENCE(buffer) empty(buffer)

#ifdef NO_WRITER_ORDER
#define WRITER_FENCE skip
#else
#define WRITER_FENCE FENCE(writer_buffer)
#endif
#ifdef NO_READER_ORDER
#define READER_FENCE skip
#else
#define READER_FENCE FENCE(reader_buffer)
#endif

/* RingProducer and Waker, as ServerSession::flush_all() and Connection::post() use them. */
active proctype writer() {
  byte tail; /* tail_ */
  byte head; /* head_: the reader's index as last seen */
  byte rung; /* rung_ */
  byte wake;
  do
  :: tail == kRecords -> break
  :: else ->
#ifdef HOSTILE
    /* free_slots(): whatever the reader says, there is room or the session pauses: it is not waited for. */
#else
    /* free_slots(): one look after another until there is room. */
    if
    :: tail - head < kSlots -> skip
    :: else -> atomic { tail - memory[kHead] < kSlots -> head = memory[kHead] }
    fi;
#endif
    /* W1: begin(), append(), finish(). */
    STORE(writer_buffer, tail % kSlots, tail + 1);
    tail++;
#ifndef HOSTILE
    if
    :: tail < kRecords && tail - head < kSlots -> goto next /* several records a publish() */
    :: skip
    fi;
#endif
    /* W2: publish(). */
    STORE(writer_buffer, kTail, tail);
    WRITER_FENCE;
    /* W3: should_ring(). */
    wake = memory[kWake];
    if
    :: wake % 2 == 1 && wake != rung ->
      rung = wake;
      /* W4: ring_doorbell(), or the daemon's signal, which adds to the count or leaves it full. */
      if
      :: atomic { bells < kBells -> bells++ }
#ifndef BLOCKING_BELL
      :: atomic { bells == kBells -> skip }
#endif
      fi
    :: else -> skip
    fi;
next: skip
  od
}

#ifdef HOSTILE
/* Says that it sleeps, each time in another sleep, and hears nothing. It may stop at any moment. */
active proctype hostile_reader() {
  byte wake;
  do
  :: wake < 2 * kRecords + 2 -> wake++; memory[kWake] = wake
  :: break
  od
}
#else

/* RingConsumer and Sleeper, as ServerSession::prepare_sleep() and wake(), Connection::lead() and
 * sleep_on_doorbell() use them. */
active proctype reader() {
  byte head; /* head_ */
  byte tail; /* tail_: the writer's index as last seen */
  byte wake; /* value_ */
  byte other_wakes;
  bool rung;
look:
  /* available(): looks the writer's index up only when nothing more is known to be there. */
  if
  :: tail == head -> tail = memory[kTail]
  :: else -> skip
  fi;
  assert(tail - head <= kSlots); /* kRingBroken */
  do
  :: head != tail ->
    /* copy_slot(), skip(), publish() */
#ifdef EARLY_HEAD
    STORE(reader_buffer, kHead, head + 1);
#endif
    assert(memory[head % kSlots] == head + 1);
    head++;
#ifndef EARLY_HEAD
    STORE(reader_buffer, kHead, head);
#endif
    READER_FENCE
  :: else -> break
  od;
  if
  :: head == kRecords -> goto done
  :: else -> skip
  fi;
  /* R1: arm(). */
#ifdef OLD_VALUE
  wake = 1;
#else
  wake = wake + 1 + wake % 2;
#endif
  assert(wake < 250);
  STORE(reader_buffer, kWake, wake);
  READER_FENCE;
#ifndef NO_RECHECK
  /* R2: available() once more. */
  tail = memory[kTail];
  if
  :: tail != head -> goto awake
  :: else -> skip
  fi;
#endif
#ifdef LATE_CLEAR
  bells = 0;
#endif
  /* R3: poll() until the doorbell rings, or something else that is polled: a time limit, another
   * session's bell, a nudge. Then the doorbell may or may not be looked at. */
  if
  :: bells > 0 -> rung = true
  :: other_wakes < kOtherWakes -> other_wakes++
  fi;
  /* R4: clear_doorbell(): one read() takes the count. To the daemon, which watches for edges,
   * epoll_wait() reports all rings so far, once. */
  if
  :: rung -> bells = 0; rung = false
  :: else -> skip
  fi;
awake:
#ifndef EVENT_LOOP
  /* disarm() */
  wake++;
  STORE(reader_buffer, kWake, wake);
  READER_FENCE;
#endif
  goto look;
done:
  skip
}
#endif
