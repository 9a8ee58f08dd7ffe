//! Parsers of cgroup files. Pure functions.

use super::stats::{
    Cfs, Hugetlb, IoOp, IoRow, Lru, Memory, MemoryEvents, NumaNode, NumaPages, Pressure, Psi,
};
use crate::parse::{Malformed, flat_keyed, lines, u64, whole_lines, words};

/// A tick of the kernel's user-visible clock. USER_HZ is 100 on every architecture Linux still supports.
const TICK_NS: u64 = 1_000_000_000 / 100;

/// v1 `cpuacct.usage_percpu`: one nanosecond figure a CPU on one line.
pub fn per_cpu(text: &[u8], out: &mut Vec<u64>) -> Result<(), Malformed> {
    out.clear();
    for word in words(whole_lines(text)?) {
        out.push(u64(word).ok_or_else(|| Malformed::at(0, text))?);
    }
    match out.is_empty() {
        true => Err(Malformed::cut_short(text)),
        false => Ok(()),
    }
}

/// v1 `cpuacct.stat`: (user, system) in nanoseconds.
pub fn cpuacct_stat(text: &[u8]) -> Result<(u64, u64), Malformed> {
    let (mut user, mut system) = (None, None);
    flat_keyed(text, |key, value| {
        match key {
            b"user" => user = Some(value.saturating_mul(TICK_NS)),
            b"system" => system = Some(value.saturating_mul(TICK_NS)),
            _ => {}
        }
        true
    })?;
    user.zip(system).ok_or_else(|| Malformed::cut_short(text))
}

/// v1 `cpu.stat`, in nanoseconds already.
pub fn cpu_stat_v1(text: &[u8]) -> Result<Cfs, Malformed> {
    let mut cfs = Cfs::default();
    flat_keyed(text, |key, value| {
        match key {
            b"nr_periods" => cfs.periods = value,
            b"nr_throttled" => cfs.throttled_periods = value,
            b"throttled_time" => cfs.throttled_ns = value,
            b"nr_bursts" => cfs.burst_periods = value,
            b"burst_time" => cfs.burst_ns = value,
            _ => {}
        }
        true
    })?;
    Ok(cfs)
}

/// v2 `cpu.stat`, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStatV2 {
    pub total_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub cfs: Cfs,
}

pub fn cpu_stat_v2(text: &[u8]) -> Result<CpuStatV2, Malformed> {
    let mut out = CpuStatV2::default();
    let mut total = None;
    flat_keyed(text, |key, value| {
        let ns = value.saturating_mul(1000);
        match key {
            b"usage_usec" => total = Some(ns),
            b"user_usec" => out.user_ns = ns,
            b"system_usec" => out.system_ns = ns,
            b"nr_periods" => out.cfs.periods = value,
            b"nr_throttled" => out.cfs.throttled_periods = value,
            b"throttled_usec" => out.cfs.throttled_ns = ns,
            b"nr_bursts" => out.cfs.burst_periods = value,
            b"burst_usec" => out.cfs.burst_ns = ns,
            _ => {}
        }
        true
    })?;
    out.total_ns = total.ok_or_else(|| Malformed::cut_short(text))?;
    Ok(out)
}

/// v1 `memory.stat`. `hierarchical`: the figures of the subtree (`total_…`) are wanted, as `memory.use_hierarchy`
/// says. Fault and refault counts exist for the cgroup itself only, whatever it says, as in the original.
pub fn memory_stat_v1(text: &[u8], hierarchical: bool, out: &mut Memory) -> Result<(), Malformed> {
    let mut lru = LruKeys::default();
    flat_keyed(text, |key, value| {
        // Whole-subtree keys and own keys differ by a prefix; the own-only counters have none.
        let wanted = match key.strip_prefix(b"total_") {
            Some(rest) if hierarchical => rest,
            Some(_) => return true,
            None => {
                match key {
                    b"pgfault" => out.pgfault = value,
                    b"pgmajfault" => out.pgmajfault = value,
                    b"workingset_refault_file" => out.refault_file = value,
                    b"workingset_refault_anon" => out.refault_anon = value,
                    own if !hierarchical => {
                        set_memory_v1(own, value, out);
                        lru.set(own, value);
                    }
                    _ => {}
                }
                return true;
            }
        };
        set_memory_v1(wanted, value, out);
        lru.set(wanted, value);
        true
    })?;
    out.lru = lru.all();
    Ok(())
}

/// The three lists count together or not at all.
#[derive(Default)]
struct LruKeys {
    inactive_anon: Option<u64>,
    active_anon: Option<u64>,
    unevictable: Option<u64>,
}

impl LruKeys {
    fn set(&mut self, key: &[u8], value: u64) {
        match key {
            b"inactive_anon" => self.inactive_anon = Some(value),
            b"active_anon" => self.active_anon = Some(value),
            b"unevictable" => self.unevictable = Some(value),
            _ => {}
        }
    }

    fn all(self) -> Option<Lru> {
        Some(Lru {
            inactive_anon: self.inactive_anon?,
            active_anon: self.active_anon?,
            unevictable: self.unevictable?,
        })
    }
}

fn set_memory_v1(key: &[u8], value: u64, out: &mut Memory) {
    match key {
        b"cache" => out.cache = value,
        b"rss" => out.rss = value,
        b"swap" => out.swap = value,
        b"mapped_file" => out.mapped_file = value,
        b"inactive_file" => out.inactive_file = value,
        b"active_file" => out.active_file = value,
        _ => {}
    }
}

/// v2 `memory.stat`, always of the subtree.
pub fn memory_stat_v2(text: &[u8], out: &mut Memory) -> Result<(), Malformed> {
    let (mut anon, mut inactive_file) = (None, None);
    let mut lru = LruKeys::default();
    flat_keyed(text, |key, value| {
        match key {
            b"anon" => anon = Some(value),
            b"file" => out.cache = value,
            b"file_mapped" => out.mapped_file = value,
            b"file_dirty" => out.dirty = value,
            b"file_writeback" => out.writeback = value,
            b"inactive_file" => inactive_file = Some(value),
            b"active_file" => out.active_file = value,
            b"pgfault" => out.pgfault = value,
            b"pgmajfault" => out.pgmajfault = value,
            b"pgscan" => out.pgscan = value,
            b"pgsteal" => out.pgsteal = value,
            b"workingset_refault_file" => out.refault_file = value,
            b"workingset_refault_anon" => out.refault_anon = value,
            b"zswap" => out.zswap = value,
            b"zswapped" => out.zswapped = value,
            other => lru.set(other, value),
        }
        true
    })?;
    out.lru = lru.all();
    let needed = anon.zip(inactive_file);
    (out.rss, out.inactive_file) = needed.ok_or_else(|| Malformed::cut_short(text))?;
    Ok(())
}

pub fn memory_events(text: &[u8]) -> Result<MemoryEvents, Malformed> {
    let mut out = MemoryEvents::default();
    flat_keyed(text, |key, value| {
        match key {
            b"low" => out.low = value,
            b"high" => out.high = value,
            b"max" => out.max = value,
            b"oom" => out.oom = value,
            b"oom_kill" => out.oom_kill = value,
            _ => {}
        }
        true
    })?;
    Ok(out)
}

/// A pressure file. The `full` line of `cpu.pressure` is absent on older kernels: zeros.
pub fn psi(text: &[u8]) -> Result<Psi, Malformed> {
    let mut out = Psi::default();
    if text.is_empty() {
        return Err(Malformed::cut_short(text));
    }
    for (index, line) in lines(whole_lines(text)?).enumerate() {
        let bad = || Malformed::at(index, line);
        let mut fields = words(line);
        let target = match fields.next() {
            Some(b"some") => &mut out.some,
            Some(b"full") => {
                out.has_full = true;
                &mut out.full
            }
            _ => return Err(bad()),
        };
        *target = pressure(fields).ok_or_else(bad)?;
    }
    Ok(out)
}

fn pressure<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<Pressure> {
    let mut out = Pressure::default();
    for field in fields {
        let at = memchr::memchr(b'=', field)?;
        let value = &field[at + 1..];
        match &field[..at] {
            b"avg10" => out.avg10_centi = centi(value)?,
            b"avg60" => out.avg60_centi = centi(value)?,
            b"avg300" => out.avg300_centi = centi(value)?,
            b"total" => out.total_us = u64(value)?,
            _ => {}
        }
    }
    Some(out)
}

/// `12.34` as 1234; the kernel always prints two decimals.
fn centi(text: &[u8]) -> Option<u64> {
    let dot = memchr::memchr(b'.', text)?;
    let decimals = text.get(dot + 1..)?;
    if decimals.len() != 2 {
        return None;
    }
    u64(&text[..dot])?
        .checked_mul(100)?
        .checked_add(u64(decimals)?)
}

fn device(text: &[u8]) -> Option<(u64, u64)> {
    let colon = memchr::memchr(b':', text)?;
    Some((u64(&text[..colon])?, u64(&text[colon + 1..])?))
}

/// v1 `blkio.*`: `MAJ:MIN [OP] VALUE` lines, then a grand total that nobody needs.
pub fn blkio(text: &[u8], out: &mut Vec<IoRow>) -> Result<(), Malformed> {
    out.clear();
    for (index, line) in lines(whole_lines(text)?).enumerate() {
        let bad = || Malformed::at(index, line);
        let mut fields = words(line);
        let (first, second, third) = (fields.next(), fields.next(), fields.next());
        let (first, second) = first.zip(second).ok_or_else(bad)?;
        if first == b"Total" {
            continue;
        }
        let (major, minor) = device(first).ok_or_else(bad)?;
        let (op, value) = match third {
            None => (IoOp::Count, second),
            Some(third) => match IoOp::from_name(second) {
                Some(op) => (op, third),
                // An operation from a newer kernel: not ours to name.
                None => continue,
            },
        };
        let value = u64(value).ok_or_else(bad)?;
        row(out, major, minor).set(op, value);
    }
    Ok(())
}

fn row(rows: &mut Vec<IoRow>, major: u64, minor: u64) -> &mut IoRow {
    let at = rows
        .iter()
        .position(|r| r.major == major && r.minor == minor)
        .unwrap_or_else(|| {
            rows.push(IoRow::new(major, minor));
            rows.len() - 1
        });
    &mut rows[at]
}

/// v2 `io.stat`: `MAJ:MIN rbytes=… wbytes=… rios=… wios=… dbytes=… dios=… [cost.…=…]`.
pub fn io_stat(text: &[u8], out: &mut super::Io) -> Result<(), Malformed> {
    out.clear();
    for (index, line) in lines(text).enumerate() {
        let bad = || Malformed::at(index, line);
        let mut fields = words(line).peekable();
        // Some kernels print `(unknown)` for a disk being torn down.
        if fields.next_if_eq(&b"(unknown)".as_slice()).is_some() {
            continue;
        }
        let (mut major, mut minor) = fields.next().and_then(device).ok_or_else(bad)?;
        for field in fields {
            let Some(at) = memchr::memchr(b'=', field) else {
                // A disk without figures and without a line end of its own: this line is about the next one.
                (major, minor) = device(field).ok_or_else(bad)?;
                continue;
            };
            let (list, op) = match &field[..at] {
                b"rbytes" => (&mut out.service_bytes, IoOp::Read),
                b"wbytes" => (&mut out.service_bytes, IoOp::Write),
                b"dbytes" => (&mut out.service_bytes, IoOp::Discard),
                b"rios" => (&mut out.serviced, IoOp::Read),
                b"wios" => (&mut out.serviced, IoOp::Write),
                b"dios" => (&mut out.serviced, IoOp::Discard),
                b"cost.usage" => (&mut out.cost_usage_us, IoOp::Count),
                b"cost.wait" => (&mut out.cost_wait_us, IoOp::Count),
                b"cost.indebt" => (&mut out.cost_indebt_us, IoOp::Count),
                b"cost.indelay" => (&mut out.cost_indelay_us, IoOp::Count),
                _ => continue,
            };
            let value = u64(&field[at + 1..]).ok_or_else(bad)?;
            row(list, major, minor).set(op, value);
        }
    }
    // A disk without figures may lack its line end; figures have one.
    match text.rsplit(|&b| b == b'\n').next() {
        Some(last) if last.contains(&b'=') => Err(Malformed::cut_short(text)),
        _ => Ok(()),
    }
}

/// v1 `memory.numa_stat`: `file=12 N0=8 N1=4` lines, then the same with `hierarchical_`.
pub fn numa_stat_v1(text: &[u8], out: &mut NumaPages) -> Result<(), Malformed> {
    numa(text, out, b'=', |key| {
        match key.strip_prefix(b"hierarchical_") {
            Some(rest) => (rest, false, true),
            None => (key, true, false),
        }
    })
}

/// v2 `memory.numa_stat`: `file N0=…` lines in bytes, of the subtree; reported in pages like v1.
pub fn numa_stat_v2(text: &[u8], page_size: u64, out: &mut NumaPages) -> Result<(), Malformed> {
    numa(text, out, b' ', |key| (key, false, true))?;
    for node in &mut out.hierarchical {
        node.file /= page_size;
        node.anon /= page_size;
        node.unevictable /= page_size;
    }
    // The kernel keeps no figures of the cgroup alone, and says the subtree's only.
    Ok(())
}

fn numa<'a>(
    text: &'a [u8],
    out: &mut NumaPages,
    after_key: u8,
    scope: impl Fn(&'a [u8]) -> (&'a [u8], bool, bool),
) -> Result<(), Malformed> {
    out.own.clear();
    out.hierarchical.clear();
    for (index, line) in lines(whole_lines(text)?).enumerate() {
        let bad = || Malformed::at(index, line);
        let end = memchr::memchr(after_key, line).ok_or_else(bad)?;
        let (kind, own, hierarchical) = scope(&line[..end]);
        let field: fn(&mut NumaNode) -> &mut u64 = match kind {
            b"file" => |n| &mut n.file,
            b"anon" => |n| &mut n.anon,
            b"unevictable" => |n| &mut n.unevictable,
            _ => continue,
        };
        for word in words(&line[end + 1..]) {
            let Some(rest) = word.strip_prefix(b"N") else {
                continue;
            };
            let at = memchr::memchr(b'=', rest).ok_or_else(bad)?;
            let id = u64(&rest[..at]).ok_or_else(bad)?;
            let value = u64(&rest[at + 1..]).ok_or_else(bad)?;
            if own {
                *field(numa_node(&mut out.own, id)) = value;
            }
            if hierarchical {
                *field(numa_node(&mut out.hierarchical, id)) = value;
            }
        }
    }
    Ok(())
}

fn numa_node(nodes: &mut Vec<NumaNode>, id: u64) -> &mut NumaNode {
    let at = nodes.iter().position(|n| n.node == id).unwrap_or_else(|| {
        nodes.push(NumaNode {
            node: id,
            ..NumaNode::default()
        });
        nodes.len() - 1
    });
    &mut nodes[at]
}

/// `hugetlb.2MB.usage_in_bytes` and the like: the size between the first two dots.
pub fn hugepage_size(name: &str) -> Option<u64> {
    let (number, scale) = if let Some(n) = name.strip_suffix("KB") {
        (n, 1 << 10)
    } else if let Some(n) = name.strip_suffix("MB") {
        (n, 1 << 20)
    } else {
        (name.strip_suffix("GB")?, 1 << 30)
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

impl Hugetlb {
    /// The size as cgroup file names and label values write it: `64KB`, `2MB`, `1GB`.
    pub fn size_name(&self) -> String {
        match self.page_size {
            size if size >= 1 << 30 => format!("{}GB", size >> 30),
            size if size >= 1 << 20 => format!("{}MB", size >> 20),
            size => format!("{}KB", size >> 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Io;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    #[track_caller]
    fn check(found: impl std::fmt::Debug, expected: Expect) {
        expected.assert_eq(&format!("{found:?}"));
    }

    #[test]
    fn pressure_lines() {
        let text = b"some avg10=1.02 avg60=0.50 avg300=10.00 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        check(
            psi(text).unwrap(),
            expect![
                "Psi { some: Pressure { total_us: 123456, avg10_centi: 102, avg60_centi: 50, avg300_centi: 1000 }, full: Pressure { total_us: 7, avg10_centi: 0, avg60_centi: 0, avg300_centi: 0 }, has_full: true }"
            ],
        );
        check(
            psi(b"some avg10=x avg60=0.50 avg300=10.00 total=1\n").unwrap_err(),
            expect![[
                r#"Malformed { line: 1, text: "some avg10=x avg60=0.50 avg300=10.00 total=1", cut_short: false }"#
            ]],
        );
    }

    /// Every beginning of a text, cut anywhere but between lines, and none at all.
    #[track_caller]
    fn check_cut<T>(text: &str, whole: &str, parse: impl Fn(&[u8]) -> Result<T, Malformed>) {
        assert!(parse(text.as_bytes()).is_ok(), "{text:?}");
        assert!(
            parse(whole.as_bytes()).is_err_and(|e| e.cut_short),
            "{whole:?}"
        );
        for end in 0..text.len() {
            let cut = &text[..end];
            if end == 0 || !cut.ends_with('\n') {
                assert!(parse(cut.as_bytes()).is_err(), "{cut:?}");
            }
        }
    }

    #[test]
    fn what_is_cut_short_is_no_zero() {
        let psi_text = "some avg10=1.02 avg60=0.50 avg300=10.00 total=12\n";
        check_cut(psi_text, "", psi);
        check_cut("user 5\nsystem 6\n", "user 5\n", cpuacct_stat);
        check_cut("nr_periods 0\nnr_throttled 0\n", "", cpu_stat_v1);
        let cpu = "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 1\n";
        check_cut(cpu, "user_usec 5\nsystem_usec 4\n", cpu_stat_v2);
        let memory = "anon 1\nfile 2\ninactive_file 1\n";
        check_cut(memory, "anon 1\nfile 2\n", |t| {
            memory_stat_v2(t, &mut Memory::default())
        });
        check_cut("cache 1\nrss 2\n", "", |t| {
            memory_stat_v1(t, true, &mut Memory::default())
        });
        check_cut("10 20 \n", "\n", |t| per_cpu(t, &mut Vec::new()));
    }

    #[test]
    fn a_cgroup_that_did_no_io_has_no_lines() {
        assert!(io_stat(b"", &mut Io::default()).is_ok());
        assert!(blkio(b"", &mut Vec::new()).is_ok());
        for broken in [
            "8:0 rbytes=1 wby",
            "8:0 rbytes=12",
            "8:0 rbytes",
            "\u{1}noise\n",
        ] {
            assert!(
                io_stat(broken.as_bytes(), &mut Io::default()).is_err(),
                "{broken:?}"
            );
        }
        assert!(blkio(b"8:0 Read 1", &mut Vec::new()).is_err());
    }

    #[test]
    fn io_stat_of_kernels_that_forget_a_line_end() {
        let mut io = Io::default();
        io_stat(b"(unknown) rbytes=9\n253:1 253:2 rbytes=7\n253:3 ", &mut io).unwrap();
        let devices: Vec<u64> = io.service_bytes.iter().map(|row| row.minor).collect();
        assert_eq!(devices, [2]);
    }

    #[test]
    fn blkio_rows() {
        let mut rows = Vec::new();
        blkio(
            b"8:0 Read 10\n8:0 Write 20\n8:16 Discard 3\n8:0 Total 30\nTotal 33\n",
            &mut rows,
        )
        .unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get(IoOp::Write), Some(20));
        assert_eq!(rows[0].get(IoOp::Sync), None);
        assert_eq!(rows[1].get(IoOp::Discard), Some(3));
        blkio(b"8:0 512\n", &mut rows).unwrap();
        assert_eq!(rows[0].get(IoOp::Count), Some(512));
        assert!(blkio(b"8:0 Read many\n", &mut rows).is_err());
    }

    #[test]
    fn io_stat_with_discard_and_cost() {
        let mut io = Io::default();
        io_stat(
            b"254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=512 dios=1 cost.usage=77\n254:16 \n",
            &mut io,
        )
        .unwrap();
        assert_eq!(io.service_bytes[0].get(IoOp::Discard), Some(512));
        assert_eq!(io.serviced[0].get(IoOp::Write), Some(2));
        assert_eq!(io.cost_usage_us[0].get(IoOp::Count), Some(77));
        assert_eq!(io.service_bytes.len(), 1);
    }

    #[test]
    fn memory_v1_hierarchical_and_own() {
        let text = b"cache 1\nrss 2\npgfault 3\ninactive_file 4\ntotal_cache 10\ntotal_rss 20\ntotal_pgfault 30\ntotal_inactive_file 40\n";
        let mut memory = Memory::default();
        memory_stat_v1(text, true, &mut memory).unwrap();
        assert_eq!(
            (
                memory.cache,
                memory.rss,
                memory.pgfault,
                memory.inactive_file
            ),
            (10, 20, 3, 40)
        );
        let mut memory = Memory::default();
        memory_stat_v1(text, false, &mut memory).unwrap();
        assert_eq!(
            (
                memory.cache,
                memory.rss,
                memory.pgfault,
                memory.inactive_file
            ),
            (1, 2, 3, 4)
        );
    }

    #[test]
    fn numa_both_versions() {
        let mut pages = NumaPages::default();
        numa_stat_v1(
            b"total=7 N0=7\nfile=3 N0=1 N1=2\nanon=4 N0=4 N1=0\nunevictable=0 N0=0 N1=0\nhierarchical_file=9 N0=5 N1=4\n",
            &mut pages,
        )
        .unwrap();
        assert_eq!(
            pages.own[1],
            NumaNode {
                node: 1,
                file: 2,
                anon: 0,
                unevictable: 0
            }
        );
        assert_eq!(pages.hierarchical[0].file, 5);
        numa_stat_v2(
            b"anon N0=8192 N1=4096\nfile N0=4096 N1=0\n",
            4096,
            &mut pages,
        )
        .unwrap();
        assert_eq!(
            pages.hierarchical[0],
            NumaNode {
                node: 0,
                file: 1,
                anon: 2,
                unevictable: 0
            }
        );
    }

    #[test]
    fn hugepage_names() {
        for name in ["64KB", "2MB", "1GB"] {
            let size = Hugetlb {
                page_size: hugepage_size(name).unwrap(),
                ..Hugetlb::default()
            };
            assert_eq!(size.size_name(), name);
        }
        assert_eq!(hugepage_size("rsvd"), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = psi(&text);
            let _ = blkio(&text, &mut Vec::new());
            let _ = io_stat(&text, &mut Io::default());
            let _ = cpu_stat_v2(&text);
            let _ = cpu_stat_v1(&text);
            let _ = cpuacct_stat(&text);
            let _ = per_cpu(&text, &mut Vec::new());
            let _ = memory_stat_v1(&text, true, &mut Memory::default());
            let _ = memory_stat_v2(&text, &mut Memory::default());
            let _ = memory_events(&text);
            let _ = numa_stat_v1(&text, &mut NumaPages::default());
            let _ = numa_stat_v2(&text, 4096, &mut NumaPages::default());
        }

        #[test]
        fn pressure_survives_a_round_trip(avg in 0u64..10_000, total: u64) {
            let text = format!("some avg10={}.{:02} avg60=0.00 avg300=0.00 total={total}\n", avg / 100, avg % 100);
            let found = psi(text.as_bytes()).unwrap();
            prop_assert_eq!((found.some.avg10_centi, found.some.total_us), (avg, total));
        }
    }
}
