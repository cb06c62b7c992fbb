/* A server without a model: token events on a known schedule, to measure a benchmark client against.
 *
 *   source [--port N] [--ttft-us N] [--gap-us N] [--ids-per-event N] [--ledger FILE]
 *
 * Prints "listening on PORT SCHEDULING" once it answers (port 0, the default, takes a free one). It serves 127.0.0.1
 * only. Where the system lets it, it runs with real-time priority.
 *
 * A streamed POST of /v1/completions or /v1/chat/completions is answered like vLLM's: HTTP/1.1, chunked, one event a
 * chunk, the ids of an event in "token_ids", then finish_reason, usage and [DONE]. Event i is due ttft + i * gap after
 * the request's last byte was read; gap 0 means as fast as the socket takes it, the streams in turn. "created_ns" is
 * CLOCK_REALTIME just before the write of that event, so that every time a client reports has its truth beside it.
 * Id number n of a stream is (n * 31 + 7) % 997: a lost, doubled or moved event shows.
 *
 * A request may ask for a stream of its own kind, in its body: "source_gap_us"; "source_pause_every" and
 * "source_pause_us", a pause after each so many events; "source_write_bytes", at most so many bytes a write, the streams
 * in turn after each.
 *
 * With a ledger, each streamed answer leaves one line when its connection ends, written before the close that a client
 * waits for: serial, ids asked for, ids sent, events sent, bytes the kernel took, writes, 1 if the answer was whole.
 *
 * One thread, epoll, TCP_NODELAY. Streams that are due wait in a heap, streams whose socket is full outside of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 4096, REQUEST = 1 << 18, ANSWER = 1 << 15, MAX_IDS = 512, BEFORE_POLL = 16 };

struct stream {
  int fd, chat, streaming, closing;
  long tokens, sent;    /* ids asked for, ids written */
  long serial;          /* of the request, for its stream id */
  long write_bytes, pause_every, events, writes, bytes;
  int64_t gap, pause;   /* ns */
  int64_t next;         /* CLOCK_MONOTONIC, ns, of the next event */
  int64_t due;          /* the same, or earlier when bytes of the last one are left: the stream's place in the heap */
  int heap_at;          /* place in the heap, -1 outside */
  int watches_out;      /* EPOLLOUT is asked for */
  size_t in_len, out_at, out_len;
  char *in, *out;
};

static int64_t ttft_ns = 50000000, gap_ns = 10000000;
static long ids_per_event = 1, requests;
static int poller, real_time;
static FILE *ledger;
static struct stream *heap[STREAMS];
static int heap_len;

static int64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the heap of streams, earliest due first ---- */

static void place(struct stream *s, int at) {
  heap[at] = s;
  s->heap_at = at;
}

static void sift(int at) {
  struct stream *s = heap[at];
  for (int up; at && heap[up = (at - 1) / 2]->due > s->due; at = up) place(heap[up], at);
  for (int down; (down = 2 * at + 1) < heap_len; at = down) {
    if (down + 1 < heap_len && heap[down + 1]->due < heap[down]->due) down++;
    if (heap[down]->due >= s->due) break;
    place(heap[down], at);
  }
  place(s, at);
}

static void schedule(struct stream *s) {
  place(s, heap_len++);
  sift(s->heap_at);
}

static void unschedule(struct stream *s) {
  if (s->heap_at < 0) return;
  struct stream *last = heap[--heap_len];
  int at = s->heap_at;
  s->heap_at = -1;
  if (last != s) {
    place(last, at);
    sift(at);
  }
}

/* ---- writing ---- */

static void account(struct stream *s) {
  if (ledger && s->serial) {
    fprintf(ledger, "%ld %ld %ld %ld %ld %ld %d\n", s->serial, s->tokens, s->sent, s->events, s->bytes, s->writes,
            s->sent == s->tokens && !s->out_len);
    fflush(ledger);
  }
  s->serial = s->events = s->bytes = s->writes = 0;
}

static void end_stream(struct stream *s) {
  account(s);
  unschedule(s);
  close(s->fd);
  free(s->in);
  free(s->out);
  free(s);
}

static void watch(struct stream *s, int out) {
  if (s->watches_out == out) return;
  struct epoll_event e = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = s};
  epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &e);
  s->watches_out = out;
}

/* 1: all written, 0: the socket is full or others are first, -1: the peer is gone */
static int flush(struct stream *s) {
  while (s->out_at < s->out_len) {
    size_t most = s->out_len - s->out_at;
    if (s->write_bytes && most > (size_t)s->write_bytes) most = (size_t)s->write_bytes;
    ssize_t n = send(s->fd, s->out + s->out_at, most, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno != EAGAIN) return -1;
      watch(s, 1);
      return 0;
    }
    s->out_at += (size_t)n;
    s->bytes += n;
    s->writes++;
    if (s->write_bytes && s->out_at < s->out_len) {
      unschedule(s);
      s->due = clock_ns(CLOCK_MONOTONIC);
      schedule(s);
      watch(s, 0);
      return 0;
    }
  }
  s->out_at = s->out_len = 0;
  watch(s, 0);
  return 1;
}

static void append(struct stream *s, const char *data, size_t n) {
  memcpy(s->out + s->out_len, data, n);
  s->out_len += n;
}

static void append_chunk(struct stream *s, const char *data, size_t n) {
  s->out_len += (size_t)sprintf(s->out + s->out_len, "%zx\r\n", n);
  append(s, data, n);
  append(s, "\r\n", 2);
}

static int opening(struct stream *s, char *to, int whole) {
  return sprintf(to, "%s{\"id\":\"%s-%ld\",\"object\":\"%s\",\"created\":1700000000,\"created_ns\":%lld,\"model\":\"source\",",
                 whole ? "" : "data: ", s->chat ? "chatcmpl" : "cmpl", s->serial,
                 s->chat ? (whole ? "chat.completion" : "chat.completion.chunk") : "text_completion",
                 (long long)clock_ns(CLOCK_REALTIME));
}

static int usage(struct stream *s, char *to) {
  return sprintf(to, "\"usage\":{\"prompt_tokens\":4,\"total_tokens\":%ld,\"completion_tokens\":%ld,\"prompt_tokens_details\":{\"cached_tokens\":0}}}",
                 4 + s->tokens, s->tokens);
}

static int id_list(struct stream *s, char *to, long count) {
  int n = 0;
  for (long i = 0; i < count; i++) n += sprintf(to + n, "%s%ld", i ? "," : "", ((s->sent + i) * 31 + 7) % 997);
  return n;
}

/* Appends the next event, and after the last one what ends an answer. */
static void append_event(struct stream *s) {
  char body[8 * MAX_IDS + 1024];
  long count = s->tokens - s->sent < ids_per_event ? s->tokens - s->sent : ids_per_event;
  int last = s->sent + count == s->tokens;
  int n = opening(s, body, 0);
  n += sprintf(body + n, s->chat ? "\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\" tick\"},\"logprobs\":null,"
                                 : "\"choices\":[{\"index\":0,%s\"text\":\" tick\",\"logprobs\":null,",
               s->chat && !s->sent ? "\"role\":\"assistant\"," : "");
  n += sprintf(body + n, "\"finish_reason\":%s,\"stop_reason\":null,\"prompt_token_ids\":%s,\"token_ids\":[",
               last ? "\"length\"" : "null", s->sent ? "null" : "[1,2,3,4]");
  n += id_list(s, body + n, count);
  n += sprintf(body + n, "]}]}\n\n");
  append_chunk(s, body, (size_t)n);
  s->sent += count;
  s->events++;
  if (!last) return;
  n = opening(s, body, 0);
  n += sprintf(body + n, "\"choices\":[],");
  n += usage(s, body + n);
  n += sprintf(body + n, "\n\n");
  append_chunk(s, body, (size_t)n);
  append_chunk(s, "data: [DONE]\n\n", 14);
  append(s, "0\r\n\r\n", 5);
}

static void answer(struct stream *s, const char *status, const char *body) {
  s->out_len += (size_t)sprintf(s->out + s->out_len, "HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %zu\r\n\r\n%s",
                                status, s->closing ? "connection: close\r\n" : "", strlen(body), body);
}

/* A whole answer for those that ask once without a stream, to see whether the server works. */
static void answer_whole(struct stream *s) {
  char *body = malloc((size_t)s->tokens * 8 + 2048);
  int n = opening(s, body, 1);
  n += sprintf(body + n, s->chat ? "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" tick\"},"
                                 : "\"choices\":[{\"index\":0,\"text\":\" tick\",");
  n += sprintf(body + n, "\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null,\"token_ids\":[");
  n += id_list(s, body + n, s->tokens);
  n += sprintf(body + n, "]}],");
  usage(s, body + n);
  answer(s, "200 OK", body);
  free(body);
}

/* ---- reading ---- */

/* The value after "name": in a JSON object, as text; 0 when the key isn't there. Keys quoted inside of strings have a
 * backslash before their quote. */
static const char *value_of(const char *json, const char *name) {
  size_t n = strlen(name);
  for (const char *p = json; (p = strstr(p, name)); p += n) {
    const char *q = p + n;
    if (p - json < 2 || p[-1] != '"' || p[-2] == '\\' || *q != '"') continue;
    for (q++; *q == ' '; q++) {}
    if (*q != ':') continue;
    for (q++; *q == ' '; q++) {}
    return q;
  }
  return 0;
}

static long asked_for(const char *body, const char *name, long otherwise) {
  const char *value = value_of(body, name);
  return value ? atol(value) : otherwise;
}

static void begin_answer(struct stream *s, const char *head, const char *body) {
  account(s);
  int completion = !strncmp(head, "POST /v1/completions ", 21);
  s->chat = !strncmp(head, "POST /v1/chat/completions ", 26);
  if (completion || s->chat) {
    const char *asked = value_of(body, "max_tokens"), *stream = value_of(body, "stream");
    if (!asked) asked = value_of(body, "max_completion_tokens");
    s->tokens = asked ? atol(asked) : 16;
    if (s->tokens < 1) s->tokens = 1;
    s->sent = 0;
    s->serial = ++requests;
    if (!stream || strncmp(stream, "true", 4)) {
      if (s->tokens > 1024) s->tokens = 1024; /* it must fit the buffer */
      answer_whole(s);
      return;
    }
    s->streaming = 1;
    s->gap = asked_for(body, "source_gap_us", gap_ns / 1000) * 1000;
    s->write_bytes = asked_for(body, "source_write_bytes", 0);
    s->pause_every = asked_for(body, "source_pause_every", 0);
    s->pause = asked_for(body, "source_pause_us", 0) * 1000;
    s->due = s->next = clock_ns(CLOCK_MONOTONIC) + ttft_ns;
    s->out_len += (size_t)sprintf(s->out + s->out_len, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n%stransfer-encoding: chunked\r\n\r\n",
                                  s->closing ? "connection: close\r\n" : "");
    schedule(s);
  } else if (!strncmp(head, "GET /health ", 12)) {
    answer(s, "200 OK", "");
  } else if (!strncmp(head, "GET /version ", 13)) {
    answer(s, "200 OK", "{\"version\":\"source\"}");
  } else if (!strncmp(head, "GET /v1/models ", 15)) {
    answer(s, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"source\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"source\",\"root\":\"source\",\"parent\":null,\"max_model_len\":32768}]}");
  } else {
    answer(s, "404 Not Found", "{\"error\":{\"message\":\"not served here\",\"type\":\"NotFoundError\",\"code\":404}}");
  }
}

/* Takes requests from the buffer, one at a time. -1: give the connection up */
static int take_requests(struct stream *s) {
  while (!s->streaming && !s->out_len && s->in_len) {
    s->in[s->in_len] = 0;
    char *end = strstr(s->in, "\r\n\r\n");
    if (!end) return s->in_len < REQUEST - 1 ? 0 : -1;
    *end = 0; /* searches of the head stop here */
    const char *length = strcasestr(s->in, "\r\ncontent-length:");
    size_t body = length ? strtoul(length + 17, 0, 10) : 0, whole = (size_t)(end - s->in) + 4 + body;
    if (whole > REQUEST - 1) return -1;
    if (s->in_len < whole) {
      int expects = strcasestr(s->in, "\r\nexpect:") && s->in_len == whole - body;
      *end = '\r';
      return expects && send(s->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL) < 0 ? -1 : 0;
    }
    s->closing = strcasestr(s->in, "\r\nconnection: close") != 0;
    char after = s->in[whole];
    s->in[whole] = 0;
    begin_answer(s, s->in, end + 4);
    s->in[whole] = after;
    memmove(s->in, s->in + whole, s->in_len - whole);
    s->in_len -= whole;
  }
  return 0;
}

static int proceed(struct stream *s) {
  int r = flush(s);
  if (r < 0 || (r && s->closing && !s->streaming)) return -1;
  return r;
}

/* Back into the heap, for the next event. */
static void await_next(struct stream *s) {
  s->due = s->next;
  schedule(s);
}

/* One due event, or what is left of it. */
static void step(struct stream *s) {
  unschedule(s);
  if (!s->out_len) {
    append_event(s);
    s->streaming = s->sent < s->tokens;
    s->next += s->gap ? s->gap : 1; /* without a gap the one nanosecond makes the streams take turns */
    if (s->pause_every && s->events % s->pause_every == 0) s->next += s->pause;
  }
  int r = proceed(s);
  if (r < 0 || (r && !s->streaming && (take_requests(s) < 0 || proceed(s) < 0))) {
    end_stream(s);
    return;
  }
  if (r && s->streaming && s->heap_at < 0) await_next(s);
}

static void on_ready(struct stream *s, uint32_t events) {
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
    ssize_t n = recv(s->fd, s->in + s->in_len, REQUEST - 1 - s->in_len, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
      end_stream(s);
      return;
    }
    if (n > 0) s->in_len += (size_t)n;
  }
  int r = proceed(s);
  if (r > 0 && (take_requests(s) < 0 || (r = proceed(s)) < 0)) r = -1;
  if (r < 0) {
    end_stream(s);
    return;
  }
  if (r && s->streaming && s->heap_at < 0) await_next(s);
}

static void accept_all(int listener) {
  int fd, one = 1;
  while ((fd = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    struct stream *s = calloc(1, sizeof *s);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    s->fd = fd;
    s->heap_at = -1;
    s->in = malloc(REQUEST);
    s->out = malloc(ANSWER);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e);
  }
}

static int listen_on(int port) {
  int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(fd, (struct sockaddr *)&at, size) || listen(fd, STREAMS) || getsockname(fd, (struct sockaddr *)&at, &size)) {
    perror("source: the port can't be used");
    exit(1);
  }
  printf("listening on %d %s\n", ntohs(at.sin_port), real_time ? "SCHED_RR" : "normal");
  fflush(stdout);
  return fd;
}

static void wait_for(int64_t due, struct epoll_event *events, int room, int listener) {
  int64_t left = due - clock_ns(CLOCK_MONOTONIC);
  if (left < 0) left = 0;
  struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
  int n = epoll_pwait2(poller, events, room, &t, 0);
  for (int i = 0; i < n; i++)
    if (events[i].data.ptr) on_ready(events[i].data.ptr, events[i].events);
    else accept_all(listener);
}

static long number(const char *text, long least, long most) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*text && !*end && value >= least && value <= most) return value;
  fprintf(stderr, "source: \"%s\" must be a number from %ld to %ld\n", text, least, most);
  exit(64);
}

int main(int argc, char **argv) {
  int port = 0;
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--port")) port = (int)number(value, 0, 65535);
    else if (!strcmp(argv[i], "--ttft-us")) ttft_ns = number(value, 0, 600000000) * 1000;
    else if (!strcmp(argv[i], "--gap-us")) gap_ns = number(value, 0, 60000000) * 1000;
    else if (!strcmp(argv[i], "--ids-per-event")) ids_per_event = number(value, 1, MAX_IDS);
    else if (!strcmp(argv[i], "--ledger")) {
      if (!(ledger = fopen(value, "a"))) {
        perror("source: the ledger can't be written");
        return 64;
      }
    } else {
      fprintf(stderr, "source: unknown option %s; use --port --ttft-us --gap-us --ids-per-event --ledger\n", argv[i]);
      return 64;
    }
  }
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  prctl(PR_SET_TIMERSLACK, 1UL); /* the default of 50 us would be in every event's time */
  prctl(PR_SET_PDEATHSIG, 15);   /* never outlive the benchmark */
  /* A server stands on a machine of its own; here the client may not take the core on which the schedule is kept. */
  struct sched_param ahead = {.sched_priority = sched_get_priority_min(SCHED_RR) + 1};
  real_time = !sched_setscheduler(0, SCHED_RR, &ahead);
  poller = epoll_create1(EPOLL_CLOEXEC);
  int listener = listen_on(port);
  struct epoll_event events[64] = {{.events = EPOLLIN, .data.ptr = 0}};
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, events);
  for (;;) {
    /* A burst of due events may not keep new requests waiting, whose time counts from when they are read. */
    for (int i = 0; i < BEFORE_POLL && heap_len && heap[0]->due <= clock_ns(CLOCK_MONOTONIC); i++) step(heap[0]);
    wait_for(heap_len ? heap[0]->due : clock_ns(CLOCK_MONOTONIC) + 1000000000, events, 64, listener);
  }
}
