//! The rules that a scenario's values keep, beyond their types: a value that breaks one is named before anything
//! is played.

use std::collections::BTreeMap;

use super::{Failure, LabError, RouterChoice, Scenario};

/// A key with the rule that its value breaks.
type Broken = (String, String);

impl Scenario {
    /// Checks the values; `place` names the scenario in errors.
    ///
    /// # Errors
    /// [`LabError::Invalid`] names the first key whose value breaks a rule, and the rule.
    pub(super) fn check(&self, place: &str) -> Result<(), LabError> {
        let checks = [Self::names, Self::numbers, Self::lists, Self::failures_apart];
        match checks.iter().try_for_each(|check| check(self)) {
            Ok(()) => Ok(()),
            Err((key, rule)) => Err(LabError::Invalid { place: place.to_owned(), key, rule }),
        }
    }

    fn names(&self) -> Result<(), Broken> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            // It names the files of results.
            let rule = format!("is `{}`; it may hold small letters, digits and `-`", self.name);
            return Err((String::from("name"), rule));
        }
        for (i, router) in self.routers.iter().enumerate() {
            if let Some(first) = self.routers[..i].iter().position(|other| other.label == router.label) {
                let rule = format!(
                    "is `{}`, as that of routers[{first}]; results are told apart by their labels",
                    router.label
                );
                return Err((format!("routers[{i}].label"), rule));
            }
        }
        Ok(())
    }

    fn numbers(&self) -> Result<(), Broken> {
        positive("duration_s", self.duration_s)?;
        positive("misfit.batch_time_factor", self.misfit.batch_time_factor)?;
        for (key, value) in [
            ("warmup_s", self.warmup_s),
            ("network_delay_s", self.network_delay_s),
            ("snapshots.period_ms", self.snapshots.period_ms),
            ("snapshots.delay_ms", self.snapshots.delay_ms),
            ("lambda_per_usd", self.lambda_per_usd),
            ("delta_per_s", self.delta_per_s),
        ] {
            not_negative(key, value)?;
        }
        for (i, failure) in self.failures.iter().enumerate() {
            not_negative(&format!("failures[{i}].at_s"), failure.at_s)?;
            not_negative(&format!("failures[{i}].for_s"), failure.for_s)?;
        }
        for (i, router) in self.routers.iter().enumerate() {
            router.numbers().map_err(|(key, rule)| (format!("routers[{i}].{key}"), rule))?;
        }
        Ok(())
    }

    fn lists(&self) -> Result<(), Broken> {
        let axes = self.axes.iter().map(|(axis, values)| (format!("axes.{axis}"), values.is_empty()));
        let sweeps = self.routers.iter().enumerate().filter_map(|(i, r)| Some((i, r.sweep.as_ref()?)));
        let sweeps = sweeps.flat_map(|(i, sweep)| {
            let key = |list: &str| format!("routers[{i}].sweep.{list}");
            [(key("options"), sweep.options.is_empty()), (key("seeds"), sweep.seeds.is_empty())]
        });
        match axes.chain(sweeps).find(|(_, empty)| *empty) {
            Some((key, _)) => Err((key, String::from("is an empty list; nothing would be played"))),
            None => Ok(()),
        }
    }

    /// An instance comes back once a failure, so one failure ends before the next of its instance starts.
    fn failures_apart(&self) -> Result<(), Broken> {
        let mut latest: BTreeMap<&str, (usize, &Failure)> = BTreeMap::new();
        let mut ordered: Vec<(usize, &Failure)> = self.failures.iter().enumerate().collect();
        ordered.sort_by(|(_, a), (_, b)| a.at_s.total_cmp(&b.at_s));
        for (i, failure) in ordered {
            let before = latest.insert(&failure.instance, (i, failure));
            if let Some((other, before)) = before.filter(|(_, b)| failure.at_s <= b.at_s + b.for_s) {
                let rule = format!(
                    "is {}, while failures[{other}] of `{}` lasts from {} to {} s; failures of one instance lie apart",
                    failure.at_s,
                    failure.instance,
                    before.at_s,
                    before.at_s + before.for_s
                );
                return Err((format!("failures[{i}].at_s"), rule));
            }
        }
        Ok(())
    }
}

impl RouterChoice {
    fn numbers(&self) -> Result<(), Broken> {
        not_negative("lambda_per_usd", self.lambda_per_usd.unwrap_or(0.0))?;
        not_negative("delta_per_s", self.delta_per_s.unwrap_or(0.0))?;
        self.sweep.as_ref().map_or(Ok(()), |sweep| positive("sweep.duration_s", sweep.duration_s))
    }
}

fn not_negative(key: &str, value: f64) -> Result<(), Broken> {
    holds(value.is_finite() && value >= 0.0, key, value, "a finite number, 0 or above")
}

fn positive(key: &str, value: f64) -> Result<(), Broken> {
    holds(value.is_finite() && value > 0.0, key, value, "a finite number above 0")
}

fn holds(fits: bool, key: &str, value: f64, wanted: &str) -> Result<(), Broken> {
    if fits { Ok(()) } else { Err((key.to_owned(), format!("is {value}; it must be {wanted}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
name: checked
pool: []
workload: {name: w}
arrivals: {name: poisson}
duration_s: 60
warmup_s: 0
network_delay_s: 0
snapshots: {period_ms: 0, delay_ms: 0}
lambda_per_usd: 0
delta_per_s: 0
misfit: {batch_time_factor: 0.5}
axes: {snapshots.delay_ms: [0]}
failures:
  - {instance: a-0, at_s: 20, for_s: 5}
  - {instance: a-0, at_s: 0, for_s: 10}
  - {instance: b-0, at_s: 5, for_s: 30}
routers:
  - {label: first, policy: {name: bear}, lambda_per_usd: 1, delta_per_s: 2}
  - {label: second, policy: {name: score}, sweep: {options: [{}], duration_s: 30, seeds: [1]}}
";

    /// A value of [`GOOD`], another that breaks a rule, and the key that is then named.
    const BROKEN: &[(&str, &str, &str)] = &[
        ("name: checked", "name: Checked", "name"),
        ("label: second", "label: first", "routers[1].label"),
        ("duration_s: 60", "duration_s: 0", "duration_s"),
        ("duration_s: 60", "duration_s: -1", "duration_s"),
        ("duration_s: 60", "duration_s: .inf", "duration_s"),
        ("warmup_s: 0", "warmup_s: -1", "warmup_s"),
        ("warmup_s: 0", "warmup_s: .nan", "warmup_s"),
        ("network_delay_s: 0", "network_delay_s: -0.1", "network_delay_s"),
        ("network_delay_s: 0", "network_delay_s: .inf", "network_delay_s"),
        ("period_ms: 0", "period_ms: -5", "snapshots.period_ms"),
        ("period_ms: 0", "period_ms: .nan", "snapshots.period_ms"),
        ("delay_ms: 0", "delay_ms: -5", "snapshots.delay_ms"),
        ("delay_ms: 0", "delay_ms: .inf", "snapshots.delay_ms"),
        ("lambda_per_usd: 0", "lambda_per_usd: -1", "lambda_per_usd"),
        ("lambda_per_usd: 0", "lambda_per_usd: .nan", "lambda_per_usd"),
        ("delta_per_s: 0", "delta_per_s: -1", "delta_per_s"),
        ("delta_per_s: 0", "delta_per_s: .inf", "delta_per_s"),
        ("factor: 0.5", "factor: 0", "misfit.batch_time_factor"),
        ("factor: 0.5", "factor: -1", "misfit.batch_time_factor"),
        ("factor: 0.5", "factor: .inf", "misfit.batch_time_factor"),
        ("lambda_per_usd: 1", "lambda_per_usd: -1", "routers[0].lambda_per_usd"),
        ("lambda_per_usd: 1", "lambda_per_usd: .inf", "routers[0].lambda_per_usd"),
        ("delta_per_s: 2", "delta_per_s: -2", "routers[0].delta_per_s"),
        ("delta_per_s: 2", "delta_per_s: .nan", "routers[0].delta_per_s"),
        ("duration_s: 30", "duration_s: 0", "routers[1].sweep.duration_s"),
        ("duration_s: 30", "duration_s: .inf", "routers[1].sweep.duration_s"),
        ("seeds: [1]", "seeds: []", "routers[1].sweep.seeds"),
        ("options: [{}]", "options: []", "routers[1].sweep.options"),
        ("delay_ms: [0]", "delay_ms: []", "axes.snapshots.delay_ms"),
        ("at_s: 20", "at_s: -20", "failures[0].at_s"),
        ("at_s: 20", "at_s: .nan", "failures[0].at_s"),
        ("for_s: 30", "for_s: -1", "failures[2].for_s"),
        ("for_s: 30", "for_s: .inf", "failures[2].for_s"),
        ("at_s: 20", "at_s: 9", "failures[0].at_s"),
        ("at_s: 20", "at_s: 10", "failures[0].at_s"),
        ("at_s: 20", "at_s: 0", "failures[1].at_s"),
        ("instance: b-0", "instance: a-0", "failures[2].at_s"),
    ];

    #[test]
    fn a_value_that_breaks_a_rule_is_named_by_its_key() {
        Scenario::parse(GOOD, "good").unwrap();
        for (from, to, key) in BROKEN {
            assert!(GOOD.contains(from), "{from}");
            let error = Scenario::parse(&GOOD.replacen(from, to, 1), "mine.yaml").unwrap_err().to_string();
            assert!(error.starts_with(&format!("mine.yaml: `{key}` ")), "{to}: {error}");
        }
    }
}
