//! The sums: what a node can lend to batch pods now, and to mid-priority pods for longer.

use plimsoll_api::priority::{PriorityClass, QosClass};

use crate::amount::Amount;
use crate::colocation::{Calculate, MidMode, Strategy};

/// A node as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Node {
    pub capacity: Amount,
    pub allocatable: Amount,
    /// Kept free by annotation.
    pub reservation: Amount,
    /// How much faster its cores are than those that requests were measured on.
    pub normalization: Option<f64>,
    /// What other systems have taken of the batch resources.
    pub third_party: Amount,
}

/// What the node's agent says is used.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// `None`: the report does not say.
    pub node: Option<Amount>,
    pub system: Amount,
    pub host_applications: Vec<(PriorityClass, Amount)>,
    /// Pods that are not among the node's pods any more, but were used when the report was made.
    pub gone: Vec<(PriorityClass, Amount)>,
    pub prod_reclaimable: Option<Amount>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub priority: PriorityClass,
    pub qos: QosClass,
    pub request: Amount,
    /// `None`: the agent has not reported it yet.
    pub used: Option<Amount>,
    /// The NUMA nodes that it is bound to; none: it may use all.
    pub zones: Vec<usize>,
}

/// How an amount came about, for people who ask why.
#[derive(Debug, Clone, PartialEq)]
pub struct Lent {
    pub amount: Amount,
    pub reason: String,
}

/// What batch pods may have, of whatever system.
pub fn batch(node: &Node, report: &Report, pods: &[Pod], strategy: &Strategy) -> Lent {
    let room = Room {
        capacity: node.capacity,
        reserved: reserved(node),
        system: system(node, report, PriorityClass::Batch),
        high: high(report, pods),
    };
    room.lend(node.normalization, strategy)
}

/// What is left of that for Kubernetes' own pods.
pub fn left_by_others(node: &Node, batch: Amount) -> Amount {
    batch.minus(node.third_party).or_nothing()
}

/// What batch pods may have of each NUMA node, whose amounts these are. What is not bound to one counts on all alike;
/// where that does not divide evenly, on each a little more than its share.
pub fn batch_by_zone(
    node: &Node,
    report: &Report,
    pods: &[Pod],
    strategy: &Strategy,
    zones: &[Amount],
) -> Vec<Amount> {
    let count = zones.len();
    let share = |amount: Amount, parts: usize| {
        let parts = i64::try_from(parts.max(1)).unwrap_or(1);
        let up = |value: i64| value / parts + i64::from(value % parts > 0);
        Amount {
            milli_cpu: up(amount.milli_cpu),
            memory: up(amount.memory),
        }
    };
    let lent = zones.iter().enumerate().map(|(index, capacity)| {
        let here = pods.iter().filter_map(|pod| {
            let bound = pod.zones.iter().filter(|zone| **zone < count).count();
            let parts = match bound {
                0 => count,
                _ if !pod.zones.contains(&index) => return None,
                bound => bound,
            };
            Some(Pod {
                request: share(pod.request, parts),
                used: pod.used.map(|used| share(used, parts)),
                ..pod.clone()
            })
        });
        let here: Vec<Pod> = here.collect();
        let gone = report.gone.iter();
        let gone = gone.map(|(priority, used)| (*priority, share(*used, count)));
        let report = Report {
            gone: gone.collect(),
            ..report.clone()
        };
        let room = Room {
            capacity: *capacity,
            reserved: share(reserved(node), count),
            system: share(system(node, &report, PriorityClass::Batch), count),
            high: high(&report, &here),
        };
        room.lend(node.normalization, strategy).amount
    });
    lent.collect()
}

/// A node, or a NUMA node of it, and what is taken of it.
struct Room {
    capacity: Amount,
    reserved: Amount,
    system: Amount,
    high: High,
}

impl Room {
    fn lend(&self, normalization: Option<f64>, strategy: &Strategy) -> Lent {
        let cpu_percent = strategy.cpu_reclaim_threshold_percent.unwrap_or(100);
        let memory_percent = strategy.memory_reclaim_threshold_percent.unwrap_or(100);
        let margin = self
            .capacity
            .percent(100 - cpu_percent, 100 - memory_percent);
        let (free, sums) = (self.capacity.minus(margin), &self.high);
        let by_usage = free.minus(self.system).minus(sums.used).or_nothing();
        let by_request = free.minus(self.reserved).minus(sums.requested).or_nothing();
        let by_both = free.minus(self.system).minus(sums.more).or_nothing();
        let chosen = |policy: Option<Calculate>| match policy.unwrap_or(Calculate::Usage) {
            Calculate::Usage => (by_usage, "usage", self.system, sums.used),
            Calculate::Request => (by_request, "request", self.reserved, sums.requested),
            Calculate::MaxUsageRequest => (by_both, "maxUsageRequest", self.system, sums.more),
        };
        let (cpu, cpu_policy, cpu_system, cpu_pods) = chosen(strategy.cpu_calculate_policy);
        let (memory, memory_policy, memory_system, memory_pods) =
            chosen(strategy.memory_calculate_policy);
        let mut amount = Amount {
            milli_cpu: cpu.milli_cpu,
            memory: memory.memory,
        };
        let bounds = self.capacity.percent(
            strategy.batch_cpu_threshold_percent.unwrap_or(100),
            strategy.batch_memory_threshold_percent.unwrap_or(100),
        );
        if strategy.batch_cpu_threshold_percent.is_some() {
            amount.milli_cpu = amount.milli_cpu.min(bounds.milli_cpu);
        }
        if strategy.batch_memory_threshold_percent.is_some() {
            amount.memory = amount.memory.min(bounds.memory);
        }
        // The bound is in the machine's own cores.
        amount.milli_cpu = normalized(amount.milli_cpu, normalization);
        let reason = format!(
            "cpu by {cpu_policy}: {}m of {}m, less a margin of {}m, {}m for the system and {}m for pods; \
             memory by {memory_policy}: {} of {}, less a margin of {}, {} for the system and {} for pods",
            amount.milli_cpu,
            self.capacity.milli_cpu,
            margin.milli_cpu,
            cpu_system.milli_cpu,
            cpu_pods.milli_cpu,
            amount.memory,
            self.capacity.memory,
            margin.memory,
            memory_system.memory,
            memory_pods.memory,
        );
        Lent { amount, reason }
    }
}

/// What mid-priority pods may have: production's unused requests, and some of what nobody requested.
pub fn mid(node: &Node, report: &Report, pods: &[Pod], strategy: &Strategy) -> Lent {
    let reclaimable = report.prod_reclaimable.unwrap_or_default().or_nothing();
    // Of a node that does not say what it uses nothing counts as idle.
    let idle = report.node.map_or_else(Amount::default, |used| {
        node.capacity.minus(used).or_nothing()
    });
    let requested = pods
        .iter()
        .filter(|pod| pod.priority.is_production())
        .fold(Amount::default(), |sum, pod| sum.plus(pod.request));
    let unallocated = node
        .capacity
        .minus(system(node, report, PriorityClass::Mid))
        .minus(requested)
        .or_nothing();
    let percent = strategy.mid_unallocated_percent.unwrap_or(0);
    let bounds = node.capacity.percent(
        strategy.mid_cpu_threshold_percent.unwrap_or(100),
        strategy.mid_memory_threshold_percent.unwrap_or(100),
    );
    if strategy.mid_reclaim_mode == Some(MidMode::Static) {
        let cpu = strategy.mid_static_cpu_reserved_percent.unwrap_or(0);
        let memory = strategy.mid_static_memory_reserved_percent.unwrap_or(0);
        return Lent {
            amount: node.capacity.percent(cpu, memory).min(bounds),
            reason: format!("always {cpu} % of the CPU and {memory} % of the memory"),
        };
    }
    let amount = reclaimable
        .min(idle)
        .plus(unallocated.percent(percent, percent))
        .min(bounds)
        .or_nothing();
    let reason = format!(
        "cpu: {}m, as production does not need {}m, {}m are idle, {percent} % of {}m are not requested, and {}m are the limit; \
         memory: {}, as production does not need {}, {} are idle, {percent} % of {} are not requested, and {} are the limit",
        amount.milli_cpu,
        reclaimable.milli_cpu,
        idle.milli_cpu,
        unallocated.milli_cpu,
        bounds.milli_cpu,
        amount.memory,
        reclaimable.memory,
        idle.memory,
        unallocated.memory,
        bounds.memory,
    );
    Lent { amount, reason }
}

/// What the node keeps for itself.
fn reserved(node: &Node) -> Amount {
    node.capacity
        .minus(node.allocatable)
        .or_nothing()
        .max(node.reservation)
}

/// What everything that is no pod uses, and at least what is reserved for it. Applications that live on what is lent to
/// a class, or on what that class leaves, do not count against it.
fn system(node: &Node, report: &Report, lent_to: PriorityClass) -> Amount {
    report
        .host_applications
        .iter()
        .filter(|(priority, _)| !priority.is_low() && *priority != lent_to)
        .fold(report.system, |sum, (_, used)| sum.plus(*used))
        .max(reserved(node))
}

/// Pods that are not batch or free, added up.
#[derive(Default)]
struct High {
    used: Amount,
    requested: Amount,
    /// Of each pod whatever is more.
    more: Amount,
}

fn high(report: &Report, pods: &[Pod]) -> High {
    let mut sums = High::default();
    for pod in pods.iter().filter(|pod| !pod.priority.is_low()) {
        // A pod that nobody has seen use anything may be about to use what it asked for.
        let mut used = pod.used.unwrap_or(pod.request);
        sums.requested = sums.requested.plus(pod.request);
        sums.more = sums.more.plus(used.max(pod.request));
        if pod.qos == QosClass::Lse {
            // Its cores are its own, used or not.
            used.milli_cpu = pod.request.milli_cpu;
        }
        sums.used = sums.used.plus(used);
    }
    for (_, used) in report
        .gone
        .iter()
        .filter(|(priority, _)| !priority.is_low())
    {
        sums.used = sums.used.plus(*used);
        sums.more = sums.more.plus(*used);
    }
    sums
}

/// Requests are in normal cores, of which a fast machine has more than it has cores. Rounded up from a thousandth of
/// what is lent, as the original does.
fn normalized(milli_cpu: i64, ratio: Option<f64>) -> i64 {
    match ratio {
        Some(ratio) if ratio > 1.0 => {
            let thousandths = (milli_cpu.saturating_mul(1000) as f64 * ratio) as i64;
            thousandths / 1000 + i64::from(thousandths % 1000 > 0)
        }
        _ => milli_cpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::Colocation;
    use std::collections::BTreeMap;

    const GIB: i64 = 1 << 30;

    fn amount(milli_cpu: i64, gib: i64) -> Amount {
        Amount {
            milli_cpu,
            memory: gib * GIB,
        }
    }

    fn node() -> Node {
        Node {
            capacity: amount(100_000, 100),
            allocatable: amount(99_000, 98),
            ..Node::default()
        }
    }

    fn strategy(json: &str) -> Strategy {
        let (strategy, problems) = Colocation::parse(json)
            .unwrap()
            .for_node(&BTreeMap::new(), &BTreeMap::new());
        assert!(problems.is_empty());
        strategy
    }

    fn pod(priority: PriorityClass, qos: QosClass, request: Amount, used: Option<Amount>) -> Pod {
        Pod {
            priority,
            qos,
            request,
            used,
            zones: Vec::new(),
        }
    }

    fn report(system: Amount) -> Report {
        Report {
            system,
            node: Some(amount(50_000, 50)),
            ..Report::default()
        }
    }

    fn pods() -> Vec<Pod> {
        use PriorityClass::{Batch, Free, Mid, None, Prod};
        vec![
            pod(
                Prod,
                QosClass::Ls,
                amount(20_000, 20),
                Some(amount(5_000, 10)),
            ),
            // Needs more than it asked for.
            pod(None, QosClass::Ls, amount(1_000, 1), Some(amount(4_000, 4))),
            pod(Mid, QosClass::Ls, amount(2_000, 2), Some(amount(1_000, 1))),
            pod(
                Prod,
                QosClass::Lse,
                amount(8_000, 8),
                Some(amount(1_000, 4)),
            ),
            // Not reported yet.
            pod(Prod, QosClass::Lsr, amount(3_000, 3), Option::None),
            pod(Batch, QosClass::Be, amount(0, 0), Some(amount(9_000, 9))),
            pod(Free, QosClass::Be, amount(0, 0), Some(amount(1_000, 1))),
        ]
    }

    #[track_caller]
    fn check(config: &str, report: &Report, expected: Amount) {
        assert_eq!(
            batch(&node(), report, &pods(), &strategy(config)).amount,
            expected
        );
    }

    #[test]
    fn by_usage() {
        // Used: 5+4+1+8(LSE: its request)+3(request) cores, 10+4+1+4+3 GiB. Margin 40 % and 35 %.
        check(
            "{}",
            &report(amount(7_000, 6)),
            amount(100_000 - 40_000 - 7_000 - 21_000, 100 - 35 - 6 - 22),
        );
        // A system that uses less than is reserved still has that.
        check(
            "{}",
            &report(amount(500, 0)),
            amount(100_000 - 40_000 - 1_000 - 21_000, 100 - 35 - 2 - 22),
        );
    }

    #[test]
    fn by_request_and_by_both() {
        let config =
            r#"{"cpuCalculatePolicy":"maxUsageRequest","memoryCalculatePolicy":"request"}"#;
        // CPU: the more of both: 20+4+2+8+3. Memory: requests 20+1+2+8+3, and what is reserved instead of what the
        // system uses.
        check(
            config,
            &report(amount(7_000, 6)),
            amount(100_000 - 40_000 - 7_000 - 37_000, 100 - 35 - 2 - 34),
        );
        let config = r#"{"memoryCalculatePolicy":"maxUsageRequest"}"#;
        check(
            config,
            &report(amount(7_000, 6)),
            amount(100_000 - 40_000 - 7_000 - 21_000, 100 - 35 - 6 - 37),
        );
    }

    #[test]
    fn host_applications_and_pods_that_are_gone_count() {
        let report = Report {
            host_applications: vec![
                (PriorityClass::Prod, amount(2_000, 2)),
                (PriorityClass::Batch, amount(5_000, 5)),
            ],
            gone: vec![
                (PriorityClass::Prod, amount(1_000, 1)),
                (PriorityClass::Batch, amount(3_000, 3)),
            ],
            ..report(amount(7_000, 6))
        };
        check(
            "{}",
            &report,
            amount(100_000 - 40_000 - 9_000 - 22_000, 100 - 35 - 8 - 23),
        );
    }

    #[test]
    fn never_less_than_nothing_and_within_bounds() {
        check("{}", &report(amount(90_000, 90)), amount(0, 0));
        check(
            r#"{"batchCPUThresholdPercent":10,"batchMemoryThresholdPercent":20}"#,
            &report(amount(7_000, 6)),
            amount(10_000, 20),
        );
        let fast = Node {
            normalization: Some(1.5),
            third_party: amount(1_000, 1),
            ..node()
        };
        let found = batch(&fast, &report(amount(7_000, 6)), &pods(), &strategy("{}")).amount;
        assert_eq!(found, amount(32_000 * 3 / 2, 37));
        assert_eq!(
            left_by_others(&fast, found),
            amount(32_000 * 3 / 2 - 1_000, 37 - 1)
        );
        assert_eq!(left_by_others(&fast, amount(10, 0)), amount(0, 0));
    }

    #[test]
    fn fast_cores_count_for_more_after_the_bound() {
        let lent = |ratio: f64, config: &str| {
            let fast = Node {
                normalization: Some(ratio),
                third_party: amount(1_000, 0),
                ..node()
            };
            let lent = batch(&fast, &report(amount(7_000, 6)), &pods(), &strategy(config));
            (
                lent.amount.milli_cpu,
                left_by_others(&fast, lent.amount).milli_cpu,
            )
        };
        assert_eq!(
            lent(1.5, r#"{"batchCPUThresholdPercent":10}"#),
            (15_000, 14_000)
        );
        // 32 000 × 1.15 / 1000 is 36 799 999.99…: in thousandths cut, then rounded up.
        assert_eq!(lent(1.15, "{}").0, 36_800);
        assert_eq!(lent(1.00001, "{}").0, 32_001);
        assert_eq!(lent(0.5, "{}").0, 32_000);
    }

    #[test]
    fn more_may_be_lent_than_there_is() {
        let config = r#"{"cpuReclaimThresholdPercent":150}"#;
        check(
            config,
            &report(amount(7_000, 6)),
            amount(100_000 + 50_000 - 7_000 - 21_000, 100 - 35 - 6 - 22),
        );
    }

    #[test]
    fn an_exclusive_pod_that_takes_more_than_its_cores() {
        let greedy = [pod(
            PriorityClass::Prod,
            QosClass::Lse,
            amount(4_000, 4),
            Some(amount(6_000, 1)),
        )];
        let lent = |config: &str| {
            let report = report(amount(7_000, 6));
            batch(&node(), &report, &greedy, &strategy(config)).amount
        };
        assert_eq!(lent("{}"), amount(100_000 - 47_000 - 4_000, 100 - 41 - 1));
        assert_eq!(
            lent(r#"{"cpuCalculatePolicy":"maxUsageRequest"}"#).milli_cpu,
            100_000 - 47_000 - 6_000
        );
    }

    #[test]
    fn mid_is_what_production_does_not_need() {
        let report = Report {
            prod_reclaimable: Some(amount(30_000, 60)),
            ..report(amount(7_000, 6))
        };
        let found = |config: &str| mid(&node(), &report, &pods(), &strategy(config)).amount;
        // 50 GiB are not used by anybody.
        assert_eq!(found("{}"), amount(30_000, 50));
        assert_eq!(
            found(r#"{"midCPUThresholdPercent":10}"#),
            amount(10_000, 50)
        );
        // Not requested by production: 100−7−(20+1+8+3) cores, 100−6−32 GiB; half of it.
        assert_eq!(
            found(r#"{"midUnallocatedPercent":50}"#),
            amount(30_000 + 30_500, 50 + 31)
        );
        // An application of the class itself does not count against it, one above it does.
        let applications = Report {
            host_applications: vec![
                (PriorityClass::Mid, amount(8_000, 8)),
                (PriorityClass::Prod, amount(2_000, 2)),
            ],
            ..report.clone()
        };
        let half = strategy(r#"{"midUnallocatedPercent":50}"#);
        assert_eq!(
            mid(&node(), &applications, &pods(), &half).amount,
            amount(30_000 + 29_500, 50 + 30)
        );
        let silent = Report {
            node: None,
            ..report.clone()
        };
        assert_eq!(
            mid(&node(), &silent, &pods(), &strategy("{}")).amount,
            amount(0, 0)
        );
        let unknown = Report {
            prod_reclaimable: None,
            ..report.clone()
        };
        assert_eq!(
            mid(&node(), &unknown, &pods(), &strategy("{}")).amount,
            amount(0, 0)
        );
    }

    #[test]
    fn mid_may_be_fixed() {
        let config = r#"{"midReclaimMode":"static","midStaticCPUReservedPercent":20,"midStaticMemoryReservedPercent":10,"midMemoryThresholdPercent":5}"#;
        let found = mid(
            &node(),
            &report(amount(7_000, 6)),
            &pods(),
            &strategy(config),
        )
        .amount;
        assert_eq!(found, amount(20_000, 5));
    }

    #[test]
    fn numa_nodes_lend_what_is_theirs() {
        let bound = Pod {
            zones: vec![1],
            ..pod(
                PriorityClass::Prod,
                QosClass::Ls,
                amount(10_000, 10),
                Some(amount(8_000, 8)),
            )
        };
        let free = pod(
            PriorityClass::Prod,
            QosClass::Ls,
            amount(6_000, 6),
            Some(amount(4_000, 4)),
        );
        // One that does not exist binds to nothing.
        let odd = Pod {
            zones: vec![7],
            ..free.clone()
        };
        // What does not divide evenly counts a little too much rather than too little.
        let thirds = [amount(50_000, 50); 3];
        let whole = Report {
            system: Amount {
                milli_cpu: 10_000,
                memory: 10 << 30,
            },
            ..Report::default()
        };
        let found = batch_by_zone(&node(), &whole, &[], &strategy("{}"), &thirds);
        assert_eq!(found[2].milli_cpu, 50_000 - 20_000 - 3_334);

        let zones = [amount(50_000, 50), amount(50_000, 50)];
        let report = Report {
            gone: vec![(PriorityClass::Prod, amount(2_000, 2))],
            ..report(amount(6_000, 6))
        };
        let found = batch_by_zone(
            &node(),
            &report,
            &[bound, free, odd],
            &strategy(r#"{"memoryReclaimThresholdPercent":60}"#),
            &zones,
        );
        // 50 less a margin of 20, half of the system's 6, halves of 4 and 4, half of what is gone.
        assert_eq!(
            found[0],
            amount(50_000 - 20_000 - 3_000 - 4_000 - 1_000, 50 - 20 - 3 - 4 - 1)
        );
        assert_eq!(found[1], found[0].minus(amount(8_000, 8)));
    }
}
