//! The distribution of numbers in bounded memory: 128 classes for each doubling, so that a quantile is within 0.4 %.

use serde_json::{Value, json};

const SHIFT: u32 = 52 - 7;
const LEAST: f64 = 1e-9;
const GREATEST: f64 = 1e15;
/// Classes of a histogram's bar: eight bars for each doubling.
const MERGED: usize = 16;
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];

/// A distribution, with weights.
#[derive(Clone, Debug, Default)]
pub struct Sketch {
    count: u64,
    weight: f64,
    sum: f64,
    max: Option<f64>,
    min: Option<f64>,
    /// Weight of what is below [`LEAST`].
    small: f64,
    first: usize,
    weights: Vec<f64>,
}

fn class(value: f64) -> usize {
    (value.min(GREATEST).to_bits() >> SHIFT) as usize
}

fn lower_edge(class: usize) -> f64 {
    f64::from_bits((class as u64) << SHIFT)
}

impl Sketch {
    /// Adds a number that stands for `weight` ones.
    pub fn add(&mut self, value: f64, weight: f64) {
        self.count += 1;
        self.weight += weight;
        self.sum += value * weight;
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        if value < LEAST {
            self.small += weight;
        } else {
            self.put(class(value), weight);
        }
    }

    fn put(&mut self, class: usize, weight: f64) {
        if self.weights.is_empty() {
            self.first = class;
        }
        if class < self.first {
            let more = self.first - class;
            self.weights.splice(0..0, std::iter::repeat_n(0.0, more));
            self.first = class;
        }
        let at = class - self.first;
        if at >= self.weights.len() {
            self.weights.resize(at + 1, 0.0);
        }
        self.weights[at] += weight;
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.weight += other.weight;
        self.sum += other.sum;
        self.small += other.small;
        self.max = [self.max, other.max].into_iter().flatten().reduce(f64::max);
        self.min = [self.min, other.min].into_iter().flatten().reduce(f64::min);
        for (at, weight) in other.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            self.put(other.first + at, *weight);
        }
    }

    /// Returns the number below which this share of the weight lies; None without numbers.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let (min, max) = (self.min?, self.max?);
        let mut left = share * self.weight - self.small;
        if left <= 0.0 && self.small > 0.0 {
            return Some(min);
        }
        for (at, weight) in self.weights.iter().enumerate() {
            left -= weight;
            if left <= 0.0 && *weight > 0.0 {
                let class = self.first + at;
                return Some(f64::midpoint(lower_edge(class), lower_edge(class + 1)).clamp(min, max));
            }
        }
        Some(max)
    }

    /// Returns the summary and the histogram as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut value = json!({
            "count": self.count,
            "mean": (self.weight > 0.0).then(|| self.sum / self.weight),
            "max": self.max,
            "histogram": self.histogram(),
        });
        for (name, share) in QUANTILES {
            value[name] = self.quantile(share).into();
        }
        value
    }

    fn histogram(&self) -> Value {
        let (mut edges, mut counts) = (Vec::new(), Vec::new());
        if self.small > 0.0 {
            edges.push(0.0);
            counts.push(self.small);
        }
        if self.weights.is_empty() {
            if self.small > 0.0 {
                edges.push(LEAST);
            }
            return json!({"edges": edges, "counts": counts});
        }
        let first = self.first / MERGED;
        let last = (self.first + self.weights.len() - 1) / MERGED;
        for bar in first..=last {
            let classes = bar * MERGED..(bar + 1) * MERGED;
            edges.push(lower_edge(bar * MERGED));
            let of = |class: usize| class.checked_sub(self.first).and_then(|at| self.weights.get(at));
            counts.push(classes.filter_map(of).sum::<f64>());
        }
        edges.push(lower_edge((last + 1) * MERGED));
        json!({"edges": edges, "counts": counts})
    }
}
