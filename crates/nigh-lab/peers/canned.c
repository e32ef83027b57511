/* The floor of an HTTP server: answers GET /<bytes> with so many bytes, ready in memory, on keep-alive
 * connections, one thread a connection, without looking at anything but the path. Prints its port.
 * Usage: canned [port]. Ends with its parent. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BODY_MAX = 64 << 20, HEAD_MAX = 16 << 10 };

static char *body;

static int send_all(int socket, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t sent = writev(socket, parts, count);
        if (sent <= 0) return -1;
        while (count > 0 && (size_t)sent >= parts->iov_len) {
            sent -= parts->iov_len;
            parts++, count--;
        }
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= sent;
        }
    }
    return 0;
}

static void *serve(void *argument) {
    int socket = (int)(intptr_t)argument;
    char request[HEAD_MAX + 1], head[256];
    size_t filled = 0;
    for (;;) {
        ssize_t got = read(socket, request + filled, HEAD_MAX - filled);
        if (got <= 0) break;
        filled += got;
        request[filled] = 0;
        char *end = strstr(request, "\r\n\r\n");
        if (!end) {
            if (filled == HEAD_MAX) break;
            continue;
        }
        long bytes = strncmp(request, "GET /", 5) == 0 ? atol(request + 5) : -1;
        if (bytes < 0 || bytes > BODY_MAX) break;
        int length = snprintf(head, sizeof head,
                              "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                              "ETag: \"d41d8cd98f00b204e9800998ecf8427e\"\r\nContent-Length: %ld\r\n\r\n", bytes);
        struct iovec parts[2] = {{head, length}, {body, bytes}};
        if (send_all(socket, parts, 2) < 0) break;
        size_t used = end + 4 - request;
        memmove(request, request + used, filled - used);
        filled -= used;
    }
    close(socket);
    return NULL;
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    body = malloc(BODY_MAX);
    if (!body) return 1;
    memset(body, 'x', BODY_MAX);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0)};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 128) < 0) return perror("canned"), 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0) continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)connection) != 0) close(connection);
        else pthread_detach(thread);
    }
}
