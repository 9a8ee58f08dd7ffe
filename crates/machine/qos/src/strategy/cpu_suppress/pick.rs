//! Which of a pool's CPUs best-effort work gets: spread over NUMA nodes, whole cores first.

use std::collections::BTreeMap;

use crate::input::Cpu;

/// `None`: the pool has fewer.
pub fn pick(pool: &[Cpu], wanted: usize) -> Option<Vec<u32>> {
    if pool.len() < wanted {
        return None;
    }
    let mut buckets = buckets(pool);
    let mut taken = Vec::with_capacity(wanted);
    // Who is next is kept between the two passes, so that single CPUs do not all come from the first node.
    let mut next = 0;
    let mut at_round = None;
    while wanted - taken.len() > 1 {
        // A round in which no node had a whole core left is the last.
        if next == 0 && at_round.replace(taken.len()) == Some(taken.len()) {
            break;
        }
        taken.extend(pair(&mut buckets[next]).into_iter().flatten());
        next = (next + 1) % buckets.len();
    }
    while taken.len() < wanted {
        if let Some(cpu) = first(&mut buckets[next]) {
            taken.push(cpu);
        }
        next = (next + 1) % buckets.len();
    }
    Some(taken)
}

/// By NUMA node and socket, the larger first; within, threads of a core side by side.
fn buckets(pool: &[Cpu]) -> Vec<Vec<Cpu>> {
    let mut buckets: BTreeMap<(u32, u32), Vec<Cpu>> = BTreeMap::new();
    for cpu in pool {
        buckets
            .entry((cpu.socket, cpu.node))
            .or_default()
            .push(*cpu);
    }
    let mut buckets: Vec<Vec<Cpu>> = buckets.into_values().collect();
    for bucket in &mut buckets {
        bucket.sort_by_key(|cpu| (cpu.core, cpu.id));
    }
    buckets.sort_by_key(|bucket| (std::cmp::Reverse(bucket.len()), bucket[0].id));
    buckets
}

/// The first two threads of one core.
fn pair(bucket: &mut Vec<Cpu>) -> Option<[u32; 2]> {
    let at = bucket
        .windows(2)
        .position(|two| two[0].core == two[1].core)?;
    let two = [bucket[at].id, bucket[at + 1].id];
    bucket.drain(at..at + 2);
    Some(two)
}

fn first(bucket: &mut Vec<Cpu>) -> Option<u32> {
    (!bucket.is_empty()).then(|| bucket.remove(0).id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Cores are numbered through; the second threads follow the first.
    fn machine(nodes: u32, cores: u32, threads: u32) -> Vec<Cpu> {
        let all = nodes * cores;
        (0..all * threads)
            .map(|id| Cpu {
                id,
                core: id % all,
                socket: id % all / cores,
                node: id % all / cores,
            })
            .collect()
    }

    #[track_caller]
    fn check(pool: &[Cpu], wanted: usize, expected: &[u32]) {
        assert_eq!(pick(pool, wanted).as_deref(), Some(expected));
    }

    #[test]
    fn whole_cores_of_all_nodes_in_turn() {
        let two = machine(2, 2, 2);
        check(&two, 2, &[0, 4]);
        check(&two, 4, &[0, 4, 2, 6]);
        check(&two, 3, &[0, 4, 2]);
        check(&two, 5, &[0, 4, 2, 6, 1]);
        check(&two, 8, &[0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(pick(&two, 9), None);
        assert_eq!(pick(&[], 0), Some(vec![]));
    }

    #[test]
    fn without_second_threads() {
        check(&machine(1, 4, 1), 3, &[0, 1, 2]);
        check(&machine(2, 2, 1), 3, &[0, 2, 1]);
    }

    #[test]
    fn the_larger_node_first() {
        let mut pool = machine(2, 2, 2);
        // Node 0 has lost a core.
        pool.retain(|cpu| cpu.core != 0);
        check(&pool, 2, &[2, 6]);
        check(&pool, 5, &[2, 6, 1, 5, 3]);
        // Halves of cores only.
        pool.retain(|cpu| cpu.id < 4);
        check(&pool, 2, &[2, 1]);
    }

    /// As koordlet 1.8.0 chose them.
    #[test]
    fn choices_are_those_of_the_original() {
        let mut rows = 0;
        for line in include_str!("../../../testdata/pick.jsonl").lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let cpus: Vec<[u32; 4]> =
                serde_json::from_value(row["cpus"].clone()).unwrap_or_default();
            let pool: Vec<Cpu> = cpus
                .into_iter()
                .map(|[id, core, socket, node]| Cpu {
                    id,
                    core,
                    socket,
                    node,
                })
                .collect();
            let wanted = row["want"].as_u64().unwrap() as usize;
            let mut found = pick(&pool, wanted).unwrap_or_default();
            found.sort_unstable();
            let expected: Vec<u32> = serde_json::from_value(row["got"].clone()).unwrap_or_default();
            assert_eq!(found, expected, "{row}");
            rows += 1;
        }
        assert!(rows >= 100);
    }

    proptest! {
        #[test]
        fn as_many_as_wanted_and_each_once(
            nodes in 1..4_u32, cores in 1..5_u32, threads in 1..3_u32,
            gone in proptest::collection::vec(0..30_u32, 0..8), wanted in 0..20_usize,
        ) {
            let mut pool = machine(nodes, cores, threads);
            pool.retain(|cpu| !gone.contains(&cpu.id));
            match pick(&pool, wanted) {
                None => prop_assert!(pool.len() < wanted),
                Some(mut picked) => {
                    prop_assert!(picked.iter().all(|id| pool.iter().any(|cpu| cpu.id == *id)));
                    picked.sort_unstable();
                    picked.dedup();
                    prop_assert_eq!(picked.len(), wanted);
                }
            }
        }
    }
}
