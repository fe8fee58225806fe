//! What the transports have counted, a line each of what there was.

use crate::control::view::{Over, Rcodes, Served};

/// Queries and replies always; of the rest what isn't zero.
pub fn lines(served: &Served) -> Vec<String> {
    let Served { queries, over, replies, rcodes, truncated, unanswered, .. } = *served;
    let Over { udp, tcp, tls, https, quic } = over;
    let over = [(udp, "UDP"), (tcp, "TCP"), (tls, "TLS"), (https, "HTTPS"), (quic, "QUIC")];
    let Rcodes { noerror, formerr, servfail, nxdomain, notimp, refused, yxdomain } = rcodes;
    let rcodes = [
        (noerror, "NOERROR"),
        (nxdomain, "NXDOMAIN"),
        (refused, "REFUSED"),
        (servfail, "SERVFAIL"),
        (formerr, "FORMERR"),
        (notimp, "NOTIMP"),
        (yxdomain, "YXDOMAIN"),
    ];
    let connections = [
        (served.open, "open"),
        (served.evicted, "evicted"),
        (served.accept_errors, "accept errors"),
        (served.handshakes_failed, "handshakes failed"),
        (served.retried, "retried"),
        (served.protocol_errors, "protocol errors"),
        (served.unproxied_connections, "unproxied"),
    ];
    let limited = [(served.slipped, "slipped"), (served.dropped, "dropped")];
    let lost = [(served.overflows, "overflows"), (served.unsent, "unsent"), (served.unproxied, "unproxied")];
    let defects = [(served.panics, "panics"), (served.restarts, "restarts")];
    let (over, rcodes) =
        ([&over[..], &[(unanswered, "unanswered")]], [&rcodes[..], &[(truncated, "truncated")]]);
    let mut lines = vec![
        sum(&format!("queries since the start: {queries}"), &words(&over.concat())),
        sum(&format!("replies: {replies}"), &words(&rcodes.concat())),
    ];
    let connections = words(&connections);
    if served.connections > 0 || !connections.is_empty() {
        lines.push(sum(&format!("connections: {}", served.connections), &connections));
    }
    for (what, counts) in [("rate limit", &limited[..]), ("lost", &lost), ("defects", &defects)] {
        let words = words(counts);
        if !words.is_empty() {
            lines.push(format!("{what}: {words}"));
        }
    }
    lines
}

/// What isn't zero, such as `UDP 9, TLS 3`.
fn words(counts: &[(u64, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, word)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

fn sum(sum: &str, parts: &str) -> String {
    if parts.is_empty() { sum.to_owned() } else { format!("{sum} ({parts})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_was_is_told_beside_queries_and_replies() {
        assert_eq!(lines(&Served::default()), ["queries since the start: 0", "replies: 0"]);
        let served = Served {
            queries: 12,
            over: Over { udp: 9, tls: 3, ..Over::default() },
            replies: 11,
            rcodes: Rcodes { noerror: 9, nxdomain: 2, ..Rcodes::default() },
            truncated: 1,
            unanswered: 1,
            connections: 2,
            open: 1,
            dropped: 1,
            overflows: 7,
            panics: 1,
            ..Served::default()
        };
        assert_eq!(
            lines(&served),
            [
                "queries since the start: 12 (UDP 9, TLS 3, unanswered 1)",
                "replies: 11 (NOERROR 9, NXDOMAIN 2, truncated 1)",
                "connections: 2 (open 1)",
                "rate limit: dropped 1",
                "lost: overflows 7",
                "defects: panics 1",
            ]
        );
    }
}
