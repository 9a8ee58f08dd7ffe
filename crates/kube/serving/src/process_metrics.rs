//! Metrics of this process as the kernel counts them.

use std::fs;

use plimsoll_metrics::Exposition;

/// Without what the kernel does not tell.
pub fn write(page: &mut Exposition) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = Fields::of(&stat);
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let mut put = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.family(name, kind, help);
            page.sample(name, &[], value);
        }
    };
    let (received, sent) = network().unzip();
    put(
        "process_cpu_seconds_total",
        "counter",
        "CPU time used, in user and kernel mode.",
        fields.cpu.map(|cpu| cpu / ticks),
    );
    put(
        "process_max_fds",
        "gauge",
        "How many files may be open at once.",
        limit("Max open files"),
    );
    put(
        "process_network_receive_bytes_total",
        "counter",
        "Bytes received by the process's network namespace.",
        received,
    );
    put(
        "process_network_transmit_bytes_total",
        "counter",
        "Bytes sent by the process's network namespace.",
        sent,
    );
    let open = fs::read_dir("/proc/self/fd").ok();
    put(
        "process_open_fds",
        "gauge",
        "How many files are open.",
        open.map(|files| files.count() as f64),
    );
    put(
        "process_resident_memory_bytes",
        "gauge",
        "Memory that is really there.",
        fields
            .resident
            .map(|pages| pages * rustix::param::page_size() as f64),
    );
    put(
        "process_start_time_seconds",
        "gauge",
        "When the process started, in seconds since the epoch.",
        started(),
    );
    put(
        "process_virtual_memory_bytes",
        "gauge",
        "Addresses in use, whether there is memory behind them or not.",
        fields.virtual_bytes,
    );
    put(
        "process_virtual_memory_max_bytes",
        "gauge",
        "Addresses that may be in use.",
        limit("Max address space"),
    );
}

/// Of `/proc/PID/stat`.
#[derive(Debug, Default, PartialEq)]
struct Fields {
    /// In ticks.
    cpu: Option<f64>,
    start: Option<f64>,
    virtual_bytes: Option<f64>,
    /// In pages.
    resident: Option<f64>,
}

impl Fields {
    fn of(stat: &str) -> Self {
        // The name may contain anything, even brackets; what follows its last bracket does not.
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            return Self::default();
        };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Self {
            cpu: number(11)
                .zip(number(12))
                .map(|(user, kernel)| user + kernel),
            start: number(19),
            virtual_bytes: number(20),
            resident: number(21),
        }
    }
}

/// Seconds since the epoch.
pub fn started() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    Some(boot + Fields::of(&stat).start? / ticks)
}

fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// Received, sent.
fn network() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let names = lines.next()?.split_ascii_whitespace();
    let values: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let mut found = (None, None);
    for (name, value) in names.zip(values) {
        match name {
            "InOctets" => found.0 = value.parse().ok(),
            "OutOctets" => found.1 = value.parse().ok(),
            _ => {}
        }
    }
    found.0.zip(found.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_process_with_a_difficult_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 9 0 5000 100000 250 1";
        assert_eq!(
            Fields::of(stat),
            Fields {
                cpu: Some(42.0),
                start: Some(5000.0),
                virtual_bytes: Some(100_000.0),
                resident: Some(250.0),
            }
        );
        assert_eq!(Fields::of("nonsense"), Fields::default());
    }

    #[test]
    fn this_process_has_figures() {
        let mut page = Exposition::default();
        write(&mut page);
        let page = page.finish();
        for name in ["cpu_seconds_total", "resident_memory_bytes", "open_fds"] {
            assert!(page.contains(&format!("\nprocess_{name} ")), "{page}");
        }
    }
}
