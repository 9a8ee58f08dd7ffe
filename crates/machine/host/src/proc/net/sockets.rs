//! Socket tables: how many TCP sockets are in which state, how much UDP has queued and dropped.

use crate::Result;
use crate::parse::{self, Malformed};

/// Sockets by state, of one of `net/tcp` and `net/tcp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpStates {
    pub established: u64,
    pub syn_sent: u64,
    pub syn_recv: u64,
    pub fin_wait1: u64,
    pub fin_wait2: u64,
    pub time_wait: u64,
    pub close: u64,
    pub close_wait: u64,
    pub last_ack: u64,
    pub listen: u64,
    pub closing: u64,
}

impl TcpStates {
    /// Every state with its lower-case name, in the order that reports use.
    pub fn each(&self) -> [(&'static str, u64); 11] {
        [
            ("established", self.established),
            ("synsent", self.syn_sent),
            ("synrecv", self.syn_recv),
            ("finwait1", self.fin_wait1),
            ("finwait2", self.fin_wait2),
            ("timewait", self.time_wait),
            ("close", self.close),
            ("closewait", self.close_wait),
            ("lastack", self.last_ack),
            ("listen", self.listen),
            ("closing", self.closing),
        ]
    }

    fn count(&mut self, state: u64) {
        let counter = match state {
            1 => &mut self.established,
            2 => &mut self.syn_sent,
            3 => &mut self.syn_recv,
            4 => &mut self.fin_wait1,
            5 => &mut self.fin_wait2,
            6 => &mut self.time_wait,
            7 => &mut self.close,
            8 => &mut self.close_wait,
            9 => &mut self.last_ack,
            10 => &mut self.listen,
            11 => &mut self.closing,
            // A state that a newer kernel added has no place in the report.
            _ => return,
        };
        *counter += 1;
    }
}

pub fn parse_tcp(text: &[u8]) -> Result<TcpStates, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut states = TcpStates::default();
    for (index, line) in rows(text) {
        // sl local_address rem_address st …
        let state = parse::words(line)
            .nth(3)
            .filter(|word| word.len() == 2)
            .and_then(parse::hex)
            .ok_or_else(|| Malformed::at(index, line))?;
        states.count(state);
    }
    Ok(states)
}

/// One of `net/udp` and `net/udp6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UdpStats {
    /// Rows: every bound socket.
    pub listen: u64,
    pub dropped: u64,
    /// Bytes that arrived and were not read yet.
    pub rx_queued: u64,
    /// Bytes handed to the kernel and not sent yet.
    pub tx_queued: u64,
}

pub fn parse_udp(text: &[u8]) -> Result<UdpStats, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut stats = UdpStats::default();
    for (index, line) in rows(text) {
        let row = parse_udp_row(line).ok_or_else(|| Malformed::at(index, line))?;
        stats.listen += 1;
        stats.dropped = stats.dropped.saturating_add(row.dropped);
        stats.rx_queued = stats.rx_queued.saturating_add(row.rx_queued);
        stats.tx_queued = stats.tx_queued.saturating_add(row.tx_queued);
    }
    Ok(stats)
}

/// sl local rem st tx_queue:rx_queue tr:when retrnsmt uid timeout inode ref pointer drops
fn parse_udp_row(line: &[u8]) -> Option<UdpStats> {
    let mut words = parse::words(line).skip(4);
    let queues = words.next()?;
    let colon = memchr::memchr(b':', queues)?;
    Some(UdpStats {
        listen: 1,
        tx_queued: parse::hex(&queues[..colon])?,
        rx_queued: parse::hex(&queues[colon + 1..])?,
        dropped: parse::u64(words.nth(7)?)?,
    })
}

/// The table without its heading.
fn rows(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    parse::numbered(text).filter(|(index, line)| *index > 0 && !parse::trim(line).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
        0: 0100007F:A63F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 38247 1 000000003c5cf71c 100 0 0 10 0                     \n   \
        1: 0100007F:280F 0100007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 38270 2 0000000039717217 100 0 0 10 0\n   \
        2: 0100007F:280F 0100007F:0017 01 00000000:00000000 00:00000000 00000000     0        0 38271 2 0000000039717217 100 0 0 10 0\n   \
        3: 0100007F:2808 0100007F:0018 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000000081da7a00\n";

    #[test]
    fn states_are_counted() {
        let states = parse_tcp(TCP.as_bytes()).unwrap();
        assert_eq!(
            states,
            TcpStates {
                established: 2,
                time_wait: 1,
                listen: 1,
                ..Default::default()
            }
        );
        assert_eq!(states.each()[9], ("listen", 1));
    }

    #[test]
    fn a_state_of_a_newer_kernel_is_passed_over() {
        let text = b"heading\n 0: 0:0 0:0 0D 0:0\n 1: 0:0 0:0 0B 0:0\n";
        let states = parse_tcp(text).unwrap();
        assert_eq!(
            states,
            TcpStates {
                closing: 1,
                ..Default::default()
            }
        );
    }

    #[test]
    fn queues_are_the_right_way_round() {
        let text = b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n    \
            1: 00000000:07D3 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 16583 2 ffff8800b4549400 0\n   \
            21: 00000000:A841 00000000:0000 07 0000000A:0000000B 00:00000000 00000000  1000        0 114299623 2 ffff880338477800 4         \n";
        assert_eq!(
            parse_udp(text).unwrap(),
            UdpStats {
                listen: 2,
                dropped: 4,
                rx_queued: 11,
                tx_queued: 10
            }
        );
    }

    #[test]
    fn bad_rows_are_named() {
        let line = |result: Result<UdpStats, Malformed>| result.unwrap_err().line;
        assert_eq!(parse_tcp(b"heading\n0: a b xx\n").unwrap_err().line, 2);
        assert_eq!(parse_tcp(b"heading\n\n0: a b\n").unwrap_err().line, 3);
        assert_eq!(
            line(parse_udp(b"heading\n0: a b 07 12 0 0 0 0 0 0 0 0\n")),
            2
        );
        assert_eq!(
            line(parse_udp(b"heading\n0: a b 07 1:2 0 0 0 0 0 0 0\n")),
            2
        );
        assert_eq!(parse_tcp(b"").unwrap(), TcpStates::default());
    }

    proptest! {
        #[test]
        fn any_table_survives(rows in prop::collection::vec((any::<u32>(), any::<u32>(), 0_u64..1000), 0..20)) {
            let mut text = String::from("heading\n");
            let mut expected = UdpStats::default();
            for (at, (tx, rx, drops)) in rows.iter().enumerate() {
                text += &format!("{at}: 0:0 0:0 07 {tx:08X}:{rx:08X} 00:0 0 0 0 1 2 ffff {drops}\n");
                expected.listen += 1;
                expected.tx_queued += u64::from(*tx);
                expected.rx_queued += u64::from(*rx);
                expected.dropped += drops;
            }
            prop_assert_eq!(parse_udp(text.as_bytes()).unwrap(), expected);
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_tcp(&text);
            let _ = parse_udp(&text);
        }
    }
}
