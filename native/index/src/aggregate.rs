//! Answers `aggregate`: counts over time, distributions, a heat map, and the same by group.

use crate::block::Block;
use crate::builder::TIME;
use crate::columns;
use crate::entry::Snapshot;
use crate::image::Unreadable;
use crate::labels::Labels;
use crate::query::{Query, Wrong};
use crate::record::{Json, Record};
use crate::scan::Visitor;
use crate::search::{Reached, search};
use crate::sketch::Sketch;
use crate::values::{counts, most_frequent, name};
use crate::view::View;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// The members that this question has of its own.
pub const MEMBERS: &[&str] = &["buckets", "group_by", "groups_limit", "fields", "heatmap", "heatmap_rows"];
const MOST_FIELDS: usize = 12;
/// A heat map begins at this share of the greatest value, or at the least one above it.
const HEATMAP_SPAN: f64 = 1e-6;

const OUTCOME: &str = "outcome";
const NOT_FAILED: [&str; 2] = ["ok", "client_disconnect"];
const WEIGHT: &str = "adjusted_count";
const OUTPUT: &str = "gen_ai.usage.output_tokens";
const INPUT: &str = "gen_ai.usage.input_tokens";

/// The buckets of time.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    from: u64,
    to: u64,
    width: u64,
    count: usize,
}

impl Buckets {
    /// Between the ends of the query, or the first and the last record of the segments.
    fn of(query: &Query, snapshot: &Snapshot) -> Self {
        let times = snapshot.iter().filter_map(|entry| entry.image.as_ref()?.times());
        let ends = times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or((0, 0));
        let from = if query.from_ns > 0 { query.from_ns } else { ends.0 };
        let to = if query.to_ns < u64::MAX { query.to_ns } else { ends.1.saturating_add(1) }.max(from + 1);
        let width = (to - from).div_ceil(query.buckets as u64).max(1);
        Self { from, to, width, count: query.buckets }
    }

    fn place(&self, time: u64) -> usize {
        ((time.saturating_sub(self.from) / self.width) as usize).min(self.count - 1)
    }
}

/// The lower edges of a heat map's rows, evenly spaced as logarithms.
#[derive(Clone, Debug)]
struct Edges {
    low: f64,
    step: f64,
    rows: usize,
}

impl Edges {
    /// By the zone maps of the field's column.
    fn of(query: &Query, snapshot: &Snapshot, field: &str) -> Self {
        let images = snapshot.iter().filter_map(|entry| entry.image.as_ref());
        let blocks = images.flat_map(|image| &image.blocks).map(|(_, block)| block);
        let within = blocks.filter(|block| block.times.1 >= query.from_ns && block.times.0 < query.to_ns);
        let zones = within.filter_map(|block| Some(block.section(columns::of(field)?)?.zone));
        let (low, high) = zones.fold((f64::INFINITY, 0.0_f64), |(low, high), zone| (low.min(zone.0), high.max(zone.1)));
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let low = low.clamp(high * HEATMAP_SPAN, high);
        // A little more than the greatest, which belongs to the last row.
        let high = if low < high { high * 1.000_001 } else { high * 2.0 };
        Self { low, step: (high / low).ln() / query.heatmap_rows as f64, rows: query.heatmap_rows }
    }

    fn place(&self, value: f64) -> usize {
        let place = (value / self.low).ln() / self.step;
        if place > 0.0 { (place as usize).min(self.rows - 1) } else { 0 }
    }

    fn to_value(&self) -> Value {
        (0..=self.rows).map(|row| self.low * (self.step * row as f64).exp()).collect()
    }
}

/// The sums of all records, or of a group.
#[derive(Clone, Debug)]
struct Totals {
    count: Vec<u64>,
    weighted: Vec<f64>,
    errors: Vec<u64>,
    output_tokens: Vec<f64>,
    input_tokens: Vec<f64>,
    sketches: Vec<Sketch>,
}

/// One record, as far as it is added up.
struct Added<'a> {
    bucket: usize,
    weight: f64,
    is_error: bool,
    output: f64,
    input: f64,
    values: &'a [f64],
}

impl Totals {
    fn new(buckets: usize, fields: usize) -> Self {
        Self {
            count: vec![0; buckets],
            weighted: vec![0.0; buckets],
            errors: vec![0; buckets],
            output_tokens: vec![0.0; buckets],
            input_tokens: vec![0.0; buckets],
            sketches: vec![Sketch::default(); fields],
        }
    }

    fn add(&mut self, added: &Added<'_>) {
        let at = added.bucket;
        self.count[at] += 1;
        self.weighted[at] += added.weight;
        self.errors[at] += u64::from(added.is_error);
        self.output_tokens[at] += if added.output.is_nan() { 0.0 } else { added.output * added.weight };
        self.input_tokens[at] += if added.input.is_nan() { 0.0 } else { added.input * added.weight };
        for (sketch, value) in self.sketches.iter_mut().zip(added.values).filter(|(_, value)| !value.is_nan()) {
            sketch.add(*value, added.weight);
        }
    }

    fn merge(&mut self, other: &Self) {
        let add = |to: &mut [f64], from: &[f64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        self.count.iter_mut().zip(&other.count).for_each(|(to, from)| *to += from);
        self.errors.iter_mut().zip(&other.errors).for_each(|(to, from)| *to += from);
        add(&mut self.weighted, &other.weighted);
        add(&mut self.output_tokens, &other.output_tokens);
        add(&mut self.input_tokens, &other.input_tokens);
        self.sketches.iter_mut().zip(&other.sketches).for_each(|(to, from)| to.merge(from));
    }

    fn write(&self, fields: &[String], into: &mut Map<String, Value>) {
        into.insert("count".into(), json!(self.count));
        into.insert("weighted".into(), json!(self.weighted));
        into.insert("errors".into(), json!(self.errors));
        into.insert("output_tokens".into(), json!(self.output_tokens));
        into.insert("input_tokens".into(), json!(self.input_tokens));
        let sketches = fields.iter().zip(&self.sketches);
        let sketches: Map<_, _> = sketches.map(|(field, sketch)| (field.clone(), sketch.to_value())).collect();
        into.insert("fields".into(), sketches.into());
    }
}

/// What is asked for, for all threads.
struct Plan {
    buckets: Buckets,
    /// Outcome, weight, tokens, the asked ones, the heat map's, the group's.
    needed: Vec<String>,
    asked: Vec<String>,
    heatmap: Option<(String, Edges)>,
    group_by: Option<String>,
    groups: HashMap<String, usize>,
}

struct Adder<'a> {
    plan: &'a Plan,
    /// All, then the groups.
    totals: Vec<Totals>,
    /// Row by row, bucket by bucket.
    cells: Vec<u64>,
    outcomes: BTreeMap<String, u64>,
}

impl Adder<'_> {
    fn add(&mut self, added: &Added<'_>, heat: f64, group: Option<usize>) {
        self.totals[0].add(added);
        if let Some(group) = group {
            self.totals[group].add(added);
        }
        if let Some((_, edges)) = self.plan.heatmap.as_ref().filter(|_| !heat.is_nan()) {
            self.cells[added.bucket * edges.rows + edges.place(heat)] += 1;
        }
    }

    fn outcome(&mut self, value: &Json, count: u64) {
        if count > 0 {
            *self.outcomes.entry(value.to_text()).or_default() += count;
        }
    }
}

/// Sampled records stand for more than one; nothing else is a weight.
fn weight(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 1.0 }
}

/// A client that left is no failure of the server, as `read/outcomes.py` has it.
fn is_error(outcome: Option<&Json>) -> bool {
    outcome.is_some_and(|outcome| NOT_FAILED.iter().all(|name| *outcome != Json::Text((*name).into())))
}

/// The numbers of an indexed field.
fn numbers(view: &mut View<'_, '_>, field: &str) -> Result<Vec<f64>, Unreadable> {
    match columns::of(field) {
        Some(column) => view.dense(column),
        None => {
            let labels = Labels::read(view, field)?;
            let of = |place: u32| labels.values[place as usize - 1].as_f64().unwrap_or(f64::NAN);
            Ok(labels.of_rows.iter().map(|place| if *place > 0 { of(*place) } else { f64::NAN }).collect())
        }
    }
}

impl Visitor for Adder<'_> {
    fn fields(&self) -> &[String] {
        &self.plan.needed
    }

    fn admits(&mut self, _block: &Block) -> bool {
        true
    }

    fn columns(&mut self, view: &mut View<'_, '_>, rows: &[u16]) -> Result<(), Unreadable> {
        let plan = self.plan;
        let outcomes = Labels::read(view, OUTCOME)?;
        let mut counted = vec![0; outcomes.values.len() + 1];
        let errors: Vec<bool> =
            std::iter::once(false).chain(outcomes.values.iter().map(|value| is_error(Some(value)))).collect();
        let (weights, outputs, inputs) = (numbers(view, WEIGHT)?, numbers(view, OUTPUT)?, numbers(view, INPUT)?);
        let asked: Vec<Vec<f64>> = plan.asked.iter().map(|field| numbers(view, field)).collect::<Result<_, _>>()?;
        let heats = plan.heatmap.as_ref().map(|(field, _)| numbers(view, field)).transpose()?;
        let groups = plan.group_by.as_ref().map(|field| Labels::read(view, field)).transpose()?;
        let slots: Vec<Option<usize>> = match &groups {
            None => vec![None],
            Some(labels) => {
                let of = |value| plan.groups.get(&name(value)).copied();
                std::iter::once(None).chain(labels.values.iter().map(of)).collect()
            }
        };
        let mut values = vec![f64::NAN; asked.len()];
        let times = view.integers(TIME)?;
        for row in rows.iter().map(|row| usize::from(*row)) {
            values.iter_mut().zip(&asked).for_each(|(value, of)| *value = of[row]);
            let outcome = outcomes.of_rows[row] as usize;
            counted[outcome] += 1;
            let added = Added {
                bucket: plan.buckets.place(times[row].cast_unsigned()),
                weight: weight(weights[row]),
                is_error: errors[outcome],
                output: outputs[row],
                input: inputs[row],
                values: &values,
            };
            let group = groups.as_ref().and_then(|labels| slots[labels.of_rows[row] as usize]);
            self.add(&added, heats.as_ref().map_or(f64::NAN, |heats| heats[row]), group);
        }
        for (value, count) in outcomes.values.iter().zip(&counted[1..]) {
            self.outcome(value, *count);
        }
        Ok(())
    }

    fn line(&mut self, time: u64, _offset: u64, record: &Record) {
        let plan = self.plan;
        let number = |field: &str| record.look_up(field).and_then(Json::as_f64).unwrap_or(f64::NAN);
        let values: Vec<f64> = plan.asked.iter().map(|field| number(field)).collect();
        let outcome = record.look_up(OUTCOME);
        let added = Added {
            bucket: plan.buckets.place(time),
            weight: weight(number(WEIGHT)),
            is_error: is_error(outcome),
            output: number(OUTPUT),
            input: number(INPUT),
            values: &values,
        };
        let of_group = plan.group_by.as_ref().and_then(|field| record.look_up(field));
        let group = of_group.and_then(|value| plan.groups.get(&name(value)).copied());
        self.add(&added, plan.heatmap.as_ref().map_or(f64::NAN, |(field, _)| number(field)), group);
        if let Some(outcome) = outcome {
            self.outcome(outcome, 1);
        }
    }
}

/// Answers a query.
///
/// # Errors
/// It asks for too many fields.
pub fn aggregate(query: &Query, snapshot: &Snapshot) -> Result<Value, Wrong> {
    let asked = query.fields.clone().unwrap_or_else(|| vec!["duration_s".into()]);
    if asked.len() > MOST_FIELDS {
        return Err(Wrong(format!("fields: must be {MOST_FIELDS} at most, not {}", asked.len())));
    }
    let (groups, of_groups) = match &query.group_by {
        None => (Vec::new(), Reached::default()),
        Some(field) => {
            let (counts, reached) = counts(query, snapshot, field);
            (most_frequent(counts, query.groups_limit), reached)
        }
    };
    let needed = [OUTCOME, WEIGHT, OUTPUT, INPUT].into_iter().map(str::to_owned).chain(asked.iter().cloned());
    let plan = Plan {
        buckets: Buckets::of(query, snapshot),
        needed: needed.chain(query.heatmap.clone()).chain(query.group_by.clone()).collect(),
        heatmap: query.heatmap.clone().map(|field| (field.clone(), Edges::of(query, snapshot, &field))),
        group_by: query.group_by.clone(),
        groups: groups.iter().enumerate().map(|(at, (value, _))| (name(value), at + 1)).collect(),
        asked,
    };
    let make = || Adder {
        plan: &plan,
        totals: vec![Totals::new(plan.buckets.count, plan.asked.len()); groups.len() + 1],
        cells: vec![0; plan.heatmap.as_ref().map_or(0, |(_, edges)| edges.rows * plan.buckets.count)],
        outcomes: BTreeMap::new(),
    };
    let (adders, reached) = search(query, snapshot, false, make);
    let mut all = make();
    for adder in adders {
        all.totals.iter_mut().zip(&adder.totals).for_each(|(to, from)| to.merge(from));
        all.cells.iter_mut().zip(&adder.cells).for_each(|(to, from)| *to += from);
        adder.outcomes.into_iter().for_each(|(value, count)| *all.outcomes.entry(value).or_default() += count);
    }
    Ok(answer(&plan, &all, &groups, &reached, reached.is_complete() && of_groups.is_complete()))
}

fn answer(plan: &Plan, all: &Adder<'_>, groups: &[(Json, u64)], reached: &Reached, complete: bool) -> Value {
    let mut answer = Map::new();
    answer.insert("from_ns".into(), plan.buckets.from.to_string().into());
    answer.insert("to_ns".into(), plan.buckets.to.to_string().into());
    answer.insert("bucket_ns".into(), plan.buckets.width.into());
    all.totals[0].write(&plan.asked, &mut answer);
    let heatmap = plan.heatmap.as_ref().map(|(_, edges)| {
        let cells: Vec<&[u64]> = all.cells.chunks_exact(edges.rows).collect();
        json!({"edges": edges.to_value(), "cells": cells})
    });
    answer.insert("heatmap".into(), heatmap.unwrap_or(Value::Null));
    let shown = groups.iter().zip(&all.totals[1..]).map(|((value, _), totals)| {
        let mut group = Map::new();
        group.insert("value".into(), value.to_value());
        totals.write(&plan.asked, &mut group);
        Value::Object(group)
    });
    answer.insert("groups".into(), shown.collect());
    answer.insert("outcomes".into(), json!(all.outcomes));
    answer.insert("complete".into(), complete.into());
    answer.insert("scanned_rows".into(), reached.scanned_rows.into());
    answer.insert("unindexed_bytes".into(), reached.unindexed_bytes.into());
    Value::Object(answer)
}
