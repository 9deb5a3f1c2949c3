//! The estimator's coefficients for a profile: the engine runs in virtual time under a mixed load, and
//! `calibrate/` fits eq. 12 to the batches it forms, as it would to a real engine's recorded steps.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    Profile, ProfileFit, TruthError, Work,
    lengths::{LogNormal, Task},
    stepping::{Happening, StepRecord, Stepping, TimeScale},
};
use crate::{
    calibrate::{self, Fit, FitOptions, Sample},
    domain::{BatchTimeCoefficients, Overhead, Timestamp},
    engine::{BatchTime, BatchWork, NewRequest},
};

/// Clients that always have one request under way, one level after the other: from an idle engine to a
/// crowded one.
const CLIENTS: [u64; 5] = [1, 4, 16, 48, 128];
/// Batches taken at each level.
const BATCHES_PER_LEVEL: usize = 1500;
/// Clients come one after the other, this far apart, microseconds.
const CLIENT_STAGGER_US: u64 = 100_000;
/// Prompt lengths of the four tasks, a quarter each, tokens.
const PROMPTS: [(Task, LogNormal); 4] = [
    (Task::InstructionFollowing, LogNormal { mu: 3.9, sigma: 0.6 }),
    (Task::QuestionAnswering, LogNormal { mu: 7.25, sigma: 0.25 }),
    (Task::Summarisation, LogNormal { mu: 9.1, sigma: 0.5 }),
    (Task::CreativeWriting, LogNormal { mu: 3.9, sigma: 0.3 }),
];
/// Shortest and longest prompt, tokens.
const PROMPT_CLIP: (f64, f64) = (8.0, 30_000.0);

/// Fits the estimator's coefficients to a profile. The load of `seed` is fitted, that of the next seed
/// judges the fit.
///
/// # Errors
/// Fails when the profile's engine cannot run or its batches cannot be fitted.
pub fn fit_profile(name: &str, profile: &Profile, seed: u64) -> Result<ProfileFit, TruthError> {
    let samples = noisy(&record_load(profile, seed)?);
    let fit = calibrate::fit(&samples, FitOptions { emitting_term: false })?;
    let batch_time = rounded(fit.coefficients);
    let others = record_load(profile, seed + 1)?;
    let without_noise = Fit::judge(batch_time, &without_noise(&others));
    Ok(ProfileFit {
        profile: name.to_string(),
        made_by: format!("bear engine --profile {name} --seed {seed} --fit"),
        seed,
        batches: samples.len(),
        batch_time,
        overhead: Overhead { ingress_s: profile.ingress.mean_s, egress_s: profile.egress.mean_s },
        effective_prefill_tokens_per_s: significant(
            calibrate::effective_prefill_tokens_per_s(&samples).unwrap_or(0.0),
        ),
        peak_prefill_tokens_per_s: significant(calibrate::peak_prefill_tokens_per_s(
            &batch_time,
            profile.engine.max_num_batched_tokens,
        )),
        mape: significant(Fit::judge(batch_time, &noisy(&others)).mape),
        mape_without_noise: significant(without_noise.mape),
        max_error: significant(without_noise.max_relative_error),
        corner_error: significant(corner_error(profile, &batch_time)),
    })
}

/// Writes a fit as the file beside its profile.
///
/// # Errors
/// Fails when the fit cannot be written as YAML.
pub fn to_yaml(fit: &ProfileFit) -> Result<String, TruthError> {
    let body =
        serde_saphyr::to_string(fit).map_err(|source| TruthError::WriteFit { source: Box::new(source) })?;
    Ok(format!(
        "# The estimator's coefficients for the simulated engine {},\n\
         # fitted by calibrate/ (relative error) to batches of that engine under a mixed load with its noise.\n\
         # The command below writes this file; a test makes it again and compares.\n\
         #\n\
         # mape is over the noisy batches of another seed, mape_without_noise and max_error over the same\n\
         # without their noise, corner_error over single fresh prompts of 0.5 to 2 times the tokens at which\n\
         # compute overtakes the floor: there four terms cannot follow a roofline.\n{body}",
        fit.profile
    ))
}

/// Returns the largest relative error of a fit on a single fresh prompt of 0.5 to 2 times the corner's
/// tokens.
#[must_use]
pub fn corner_error(profile: &Profile, coefficients: &BatchTimeCoefficients) -> f64 {
    let corner = profile.batch_time.corner_tokens();
    let time = BatchTime::from(coefficients);
    (0..=60)
        .map(|i| {
            let tokens = (corner * (0.5 + 1.5 * f64::from(i) / 60.0)).round() as u32;
            let mut work = BatchWork::default();
            work.add(tokens, 0, false, true);
            let truth_s = profile.batch_time.seconds([Work { tokens, context_tokens: 0, decodes: false }]);
            let fitted_s = time.duration(&work) as f64 / 1e18;
            (fitted_s / truth_s - 1.0).abs()
        })
        .fold(0.0, f64::max)
}

/// Runs the engine in virtual time under every level of load and returns its batches.
///
/// # Errors
/// Fails when the profile's engine cannot run.
pub fn record_load(profile: &Profile, seed: u64) -> Result<Vec<StepRecord>, TruthError> {
    let mut records = Vec::new();
    for clients in CLIENTS {
        let mut load = Load::new(profile, seed, clients)?;
        records.extend(load.run(BATCHES_PER_LEVEL));
    }
    Ok(records)
}

struct Load<'a> {
    profile: &'a Profile,
    stepping: Stepping,
    rng: ChaCha8Rng,
    sent: u64,
    clients: u64,
}

impl<'a> Load<'a> {
    fn new(profile: &'a Profile, seed: u64, clients: u64) -> Result<Self, TruthError> {
        let scale = TimeScale { origin: Timestamp::from_unix_us(0), factor: 1.0 };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(clients);
        let mut stepping = Stepping::new(profile, seed.wrapping_mul(1_000).wrapping_add(clients), scale)?;
        stepping.record_batches();
        Ok(Self { profile, stepping, rng, sent: 0, clients })
    }

    fn run(&mut self, batches: usize) -> Vec<StepRecord> {
        for client in 0..self.clients {
            self.send(client * CLIENT_STAGGER_US);
        }
        let (mut records, mut happenings) = (Vec::new(), Vec::new());
        while records.len() < batches
            && let Some(at_us) = self.stepping.next_us()
        {
            self.stepping.advance(at_us, &mut happenings);
            for happening in happenings.drain(..) {
                if let Happening::Token { last: true, at_us, .. } = happening {
                    let away_s = self.profile.egress.draw_s(&mut self.rng)
                        + self.profile.ingress.draw_s(&mut self.rng);
                    self.send(at_us + (away_s * 1e6) as u64);
                }
            }
            records.append(&mut self.stepping.take_records());
        }
        records
    }

    fn send(&mut self, at_us: u64) {
        let (task, prompt) = PROMPTS[self.rng.random_range(0..PROMPTS.len())];
        let prompt_tokens = prompt.draw(&mut self.rng).round().clamp(PROMPT_CLIP.0, PROMPT_CLIP.1) as u32;
        let request = NewRequest {
            id: format!("r{}", self.sent),
            prompt_tokens,
            output_tokens: self.profile.output_tokens.draw_tokens(task, &mut self.rng),
            max_tokens: None,
            priority: 0,
            block_hashes: [].into(),
        };
        self.sent += 1;
        self.stepping.submit(at_us, request);
    }
}

fn noisy(records: &[StepRecord]) -> Vec<Sample> {
    records.iter().map(|r| Sample { work: r.work, duration_s: r.duration_s }).collect()
}

fn without_noise(records: &[StepRecord]) -> Vec<Sample> {
    records.iter().map(|r| Sample { work: r.work, duration_s: r.duration_without_noise_s }).collect()
}

fn rounded(b: BatchTimeCoefficients) -> BatchTimeCoefficients {
    BatchTimeCoefficients {
        b0_s: significant(b.b0_s),
        b1_s: significant(b.b1_s),
        b2_s: significant(b.b2_s),
        b3_s: significant(b.b3_s),
        b4_s: significant(b.b4_s),
    }
}

/// Rounds to four significant digits: more would claim a precision that a fit does not have.
fn significant(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::PROFILES;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * a.abs().max(b.abs())
    }

    #[test]
    fn the_committed_fits_are_what_the_command_makes() {
        for entry in PROFILES {
            let committed = entry.parse_fit().unwrap();
            let made =
                fit_profile(entry.name, &Profile::built_in(entry.name).unwrap(), committed.seed).unwrap();
            assert_eq!((&made.made_by, made.batches), (&committed.made_by, committed.batches));
            let numbers = |f: &ProfileFit| {
                [
                    f.batch_time.b0_s,
                    f.batch_time.b1_s,
                    f.batch_time.b2_s,
                    f.batch_time.b3_s,
                    f.overhead.ingress_s,
                    f.overhead.egress_s,
                    f.effective_prefill_tokens_per_s,
                    f.peak_prefill_tokens_per_s,
                    f.mape,
                    f.mape_without_noise,
                    f.max_error,
                    f.corner_error,
                ]
            };
            for (made, committed) in numbers(&made).into_iter().zip(numbers(&committed)) {
                assert!(close(made, committed), "{}: {made} is not {committed}", entry.name);
            }
            let parsed: ProfileFit = serde_saphyr::from_str(&to_yaml(&made).unwrap()).unwrap();
            assert_eq!(parsed, made);
        }
    }

    #[test]
    fn four_terms_cannot_follow_the_roofline_at_its_corner() {
        for entry in PROFILES {
            let profile = Profile::built_in(entry.name).unwrap();
            assert!(entry.parse_fit().unwrap().corner_error >= 0.15, "{}", entry.name);
            // Nor can those fitted to nothing but single fresh prompts of every size.
            let sizes = (0..200).map(|i| (8192f64.powf(f64::from(i) / 199.0)).round() as u32);
            let samples: Vec<Sample> = sizes
                .map(|tokens| {
                    let mut work = BatchWork::default();
                    work.add(tokens, 0, false, true);
                    let truth = Work { tokens, context_tokens: 0, decodes: false };
                    Sample { work, duration_s: profile.batch_time.seconds([truth]) }
                })
                .collect();
            let fit = calibrate::fit(&samples, FitOptions { emitting_term: false }).unwrap();
            let error = corner_error(&profile, &fit.coefficients);
            assert!(error >= 0.15, "{}: {error}", entry.name);
        }
    }

    #[test]
    fn the_fit_is_near_the_noise_floor_on_its_load() {
        // A lognormal with sigma 0.08 is off its mean by 6.4% on average.
        for entry in PROFILES {
            let fit = entry.parse_fit().unwrap();
            assert!((0.055..0.08).contains(&fit.mape), "{}: {}", entry.name, fit.mape);
        }
    }
}
