//! `ImageLocality`: likes nodes that hold the pod's images already.

use crate::cluster::NodeId;
use crate::framework::score::MAX_SCORE;
use crate::framework::state::Context;

const MIB: i64 = 1024 * 1024;
const LEAST: i64 = 23 * MIB;
const MOST_BY_CONTAINER: i64 = 1000 * MIB;

/// An image counts by its size and by how many nodes hold it already: an image on one node is to draw no crowd there.
pub fn score(context: &Context<'_>, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let local = &context.class.spec.local;
    let total = context.cluster.nodes.current_order().len().max(1);
    let known: Vec<_> = local
        .images
        .iter()
        .filter_map(|name| context.cluster.images.get(*name))
        .map(|image| {
            let share = f64::from(image.number_of_nodes) / total as f64;
            (image, (image.size as f64 * share) as i64)
        })
        .collect();
    if known.is_empty() {
        return false;
    }
    let most = MOST_BY_CONTAINER.saturating_mul(i64::from(local.containers));
    out.extend(nodes.iter().map(|node| {
        let sum: i64 = known
            .iter()
            .filter(|(image, _)| image.is_on(*node))
            .fold(0, |sum, (_, score)| sum.saturating_add(*score));
        let sum = if sum < LEAST { LEAST } else { sum.min(most) };
        let part = i128::from(MAX_SCORE) * i128::from(sum - LEAST);
        i64::try_from(part / i128::from((most - LEAST).max(1))).unwrap_or(0)
    }));
    true
}

#[cfg(test)]
mod tests {
    use crate::framework::plugin::Plugin;
    use crate::plugins::testing::Kit;

    fn node(name: &str, images: &[(&str, i64)]) -> String {
        let images: Vec<_> = images
            .iter()
            .map(|(image, mib)| {
                format!(
                    r#"{{"names":["{image}"],"sizeBytes":{}}}"#,
                    mib * 1024 * 1024
                )
            })
            .collect();
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"status":{{"images":[{}]}}}}"#,
            images.join(",")
        )
    }

    #[test]
    fn size_and_spread_count() {
        let nodes = [
            node("one", &[("web:latest", 250), ("db:1", 40)]),
            node("other", &[("web:latest", 250)]),
            node("bare", &[]),
        ];
        let mut kit = Kit::with_nodes(&[&nodes[0], &nodes[1], &nodes[2]]);
        // 250 MiB on two of three nodes: 166.6 MiB; (166 - 23) / (2000 - 23) = 7 %. 40 MiB on one: below 23.
        let pod = r#"{"spec":{"containers":[{"image":"web"},{"image":"db:1"}]}}"#;
        kit.check_scores(
            Plugin::ImageLocality,
            pod,
            &[("one", 7), ("other", 7), ("bare", 0)],
        );
        let pod = r#"{"spec":{"containers":[{"image":"web"}]}}"#;
        kit.check_scores(
            Plugin::ImageLocality,
            pod,
            &[("one", 14), ("other", 14), ("bare", 0)],
        );
        let pod = r#"{"spec":{"containers":[{"image":"unknown"}]}}"#;
        assert_eq!(kit.scores(Plugin::ImageLocality, pod), None);
    }
}
