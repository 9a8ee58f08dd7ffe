//! How much of what production pods requested they will not need.
//!
//! Two ways of looking at it, each wrong in its own way: pod by pod (peaks that do not coincide are added up) and all
//! pods of a class at once (a pod that is about to grow hides among the others). The smaller answer is the one to use.

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::priority::PriorityClass;

use crate::Amount;
use crate::models::Models;
use crate::subject::Subject;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// What is added to every forecast, as a share of it.
    pub margin: f64,
    /// A pod younger than this may not have shown yet what it needs.
    pub cold_for: SignedDuration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            margin: 0.1,
            cold_for: SignedDuration::from_hours(24),
        }
    }
}

/// A pod as the predictors see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod<'a> {
    pub uid: &'a str,
    pub priority: PriorityClass,
    pub request: Amount,
    pub created: Timestamp,
    /// Is being deleted.
    pub terminating: bool,
    /// Has succeeded or failed.
    pub terminated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reclaimable {
    /// What may be lent.
    pub amount: Amount,
    /// What production is expected to need.
    pub peak: Amount,
}

/// What may be lent of production pods' requests: the more careful of the two answers, never beyond what the node has
/// left when production peaks.
pub fn prod_reclaimable(
    models: &Models,
    pods: &[Pod<'_>],
    allocatable: Option<Amount>,
    now: Timestamp,
    config: &Config,
) -> Reclaimable {
    let pod = by_pod(models, pods, now, config);
    let class = by_class(models, pods, config);
    let [pod, class] = [pod, class].map(|one| capped(one, allocatable));
    Reclaimable {
        amount: pod.amount.map2(class.amount, f64::min),
        peak: pod.peak.map2(class.peak, f64::max),
    }
}

/// Pod by pod: what each will not need of its own request. A pod that is young or unknown is expected to need all of it.
pub fn by_pod(models: &Models, pods: &[Pod<'_>], now: Timestamp, config: &Config) -> Reclaimable {
    let mut sum = Reclaimable::default();
    for pod in pods.iter().filter(|pod| pod.priority.is_production()) {
        if pod.terminating || pod.terminated {
            continue;
        }
        let cold = now.duration_since(pod.created) <= config.cold_for;
        let forecast = models
            .predict(&Subject::Pod(pod.uid.to_owned()))
            .filter(|_| !cold);
        let Some(forecast) = forecast else {
            sum.peak = sum.peak.plus(pod.request);
            continue;
        };
        let peak = forecast.peak().times(1.0 + config.margin);
        sum.amount = sum.amount.plus(pod.request.minus(peak));
        sum.peak = sum.peak.plus(peak);
    }
    sum
}

/// All at once: what production and the system together will not need of production's requests.
pub fn by_class(models: &Models, pods: &[Pod<'_>], config: &Config) -> Reclaimable {
    let requests = pods
        .iter()
        .filter(|pod| pod.priority.is_production() && !pod.terminating && !pod.terminated)
        .fold(Amount::default(), |sum, pod| sum.plus(pod.request));
    let subjects = [
        Subject::System,
        Subject::Class(PriorityClass::Prod),
        Subject::Class(PriorityClass::None),
    ];
    let mut peak = Amount::default();
    for subject in subjects {
        // Without a model nothing can be said, so nothing is lent.
        let Some(forecast) = models.predict(&subject) else {
            return Reclaimable {
                amount: Amount::default(),
                peak: requests,
            };
        };
        peak = peak.plus(forecast.peak());
    }
    let peak = peak.times(1.0 + config.margin);
    Reclaimable {
        amount: requests.minus(peak),
        peak,
    }
}

/// Never beyond what the node has left when production peaks.
pub fn capped(found: Reclaimable, allocatable: Option<Amount>) -> Reclaimable {
    let Some(allocatable) = allocatable else {
        return found;
    };
    Reclaimable {
        amount: found.amount.map2(allocatable.minus(found.peak), f64::min),
        ..found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Round;

    fn now() -> Timestamp {
        "2026-06-01T12:00:00Z".parse().unwrap()
    }

    fn amount(cpu: f64, gib: f64) -> Amount {
        Amount {
            cpu,
            memory: gib * 1_073_741_824.0,
        }
    }

    fn pod(uid: &str, priority: PriorityClass, request: Amount) -> Pod<'_> {
        Pod {
            uid,
            priority,
            request,
            created: now() - SignedDuration::from_hours(48),
            terminating: false,
            terminated: false,
        }
    }

    /// Two production pods using 1 core and 1 GiB each, one without a class using half of that, a batch pod, and a
    /// system using a quarter.
    fn models() -> Models {
        let mut models = Models::default();
        let round = Round {
            node: Some(amount(4.75, 4.75)),
            pods: vec![
                ("a", PriorityClass::Prod, amount(1.0, 1.0)),
                ("b", PriorityClass::Prod, amount(1.0, 1.0)),
                ("c", PriorityClass::None, amount(0.5, 0.5)),
                ("d", PriorityClass::Batch, amount(2.0, 2.0)),
            ],
        };
        for minute in 0..60 {
            models.train(&round, now() - SignedDuration::from_mins(60 - minute));
        }
        models
    }

    /// Within the width of a bucket, and never below.
    #[track_caller]
    fn assert_near(found: f64, wanted: f64) {
        assert!(
            (wanted * 0.88 - 0.15..=wanted + 1e-9).contains(&found),
            "{found} is not about {wanted}"
        );
    }

    #[test]
    fn pod_by_pod() {
        let pods = [
            pod("a", PriorityClass::Prod, amount(4.0, 4.0)),
            pod("c", PriorityClass::None, amount(2.0, 2.0)),
            // Batch pods do not count, nor does what needs more than it asked for.
            pod("d", PriorityClass::Batch, amount(8.0, 8.0)),
            pod("b", PriorityClass::Prod, amount(0.5, 0.5)),
        ];
        let found = by_pod(&models(), &pods, now(), &Config::default());
        let wanted = (4.0 - 1.1) + (2.0 - 0.55);
        assert_near(found.amount.cpu, wanted);
        assert_near(found.amount.memory / 1_073_741_824.0, wanted);
    }

    #[test]
    fn the_young_the_unknown_and_the_leaving_lend_nothing() {
        let request = amount(4.0, 4.0);
        let young = Pod {
            created: now() - SignedDuration::from_hours(24),
            ..pod("a", PriorityClass::Prod, request)
        };
        let unknown = pod("z", PriorityClass::Prod, request);
        let leaving = Pod {
            terminating: true,
            ..pod("a", PriorityClass::Prod, request)
        };
        let over = Pod {
            terminated: true,
            ..pod("a", PriorityClass::Prod, request)
        };
        let found = by_pod(
            &models(),
            &[young, unknown, leaving, over],
            now(),
            &Config::default(),
        );
        assert_eq!(found.amount, Amount::default());
        // But those that stay may need what they asked for.
        assert_eq!(found.peak, amount(8.0, 8.0));
    }

    #[test]
    fn by_class_counts_the_system_too() {
        let pods = [
            pod("a", PriorityClass::Prod, amount(6.0, 6.0)),
            pod("d", PriorityClass::Batch, amount(8.0, 8.0)),
        ];
        let found = by_class(&models(), &pods, &Config::default());
        assert_near(found.amount.cpu, 6.0 - (0.25 + 2.0 + 0.5) * 1.1);
        assert_eq!(
            by_class(&Models::default(), &pods, &Config::default()).amount,
            Amount::default()
        );
    }

    #[test]
    fn the_smaller_answer_counts_and_the_node_is_the_limit() {
        let pods = [pod("a", PriorityClass::Prod, amount(6.0, 6.0))];
        let config = Config::default();
        let (pod, class) = (
            by_pod(&models(), &pods, now(), &config),
            by_class(&models(), &pods, &config),
        );
        assert!(class.amount.cpu < pod.amount.cpu);
        let free = prod_reclaimable(&models(), &pods, None, now(), &config);
        assert_eq!(free.amount, class.amount);
        assert_eq!(free.peak.cpu, class.peak.cpu.max(pod.peak.cpu));
        let tight = prod_reclaimable(&models(), &pods, Some(amount(4.0, 64.0)), now(), &config);
        assert_eq!(tight.amount.cpu, 4.0 - class.peak.cpu);
        assert_eq!(tight.amount.memory, class.amount.memory);
    }
}
