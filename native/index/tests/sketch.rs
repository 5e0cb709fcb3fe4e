//! Quantiles are within one per cent of those of all numbers.

use index::sketch::Sketch;
use proptest::prelude::*;

fn exact(numbers: &[(f64, f64)], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut left = share * sorted.iter().map(|(_, weight)| weight).sum::<f64>();
    for (value, weight) in &sorted {
        left -= weight;
        if left <= 1e-9 {
            return *value;
        }
    }
    sorted.last().unwrap().0
}

proptest! {
    #[test]
    fn quantiles_are_near(
        numbers in prop::collection::vec((1e-6_f64..1e6, prop::sample::select(vec![1.0, 2.0, 10.0])), 1..200),
        share in prop::sample::select(vec![0.5, 0.9, 0.95, 0.99]),
        split in 0_usize..200,
    ) {
        let (mut one, mut other) = (Sketch::default(), Sketch::default());
        for (at, (value, weight)) in numbers.iter().enumerate() {
            (if at < split { &mut one } else { &mut other }).add(*value, *weight);
        }
        one.merge(&other);
        let (found, exact) = (one.quantile(share).unwrap(), exact(&numbers, share));
        prop_assert!((found - exact).abs() <= exact * 0.01, "{} and {}", found, exact);
        let value = one.to_value();
        let counted: f64 = value["histogram"]["counts"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap()).sum();
        prop_assert_eq!(counted, numbers.iter().map(|(_, weight)| weight).sum::<f64>());
    }
}

#[test]
fn what_is_zero_or_negative_counts_as_least() {
    let mut sketch = Sketch::default();
    [0.0, -1.0, 0.0, 5.0].iter().for_each(|value| sketch.add(*value, 1.0));
    assert_eq!(sketch.quantile(0.5), Some(-1.0));
    assert_eq!(sketch.quantile(0.99), Some(5.0));
    assert_eq!(Sketch::default().quantile(0.5), None);
}
