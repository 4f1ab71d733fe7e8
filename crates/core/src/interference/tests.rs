use super::*;
use crate::random::Random;

/// A table of a known form: programs × injectors at places, with noise.
fn planted(form: Form, programs: usize, injectors: usize, noise: f64) -> Vec<Row> {
    let mut random = Random::new(7, 0);
    let count = match form.factors {
        Factors::Several(count) => count,
        Factors::Alike => 1,
        Factors::None => 0,
    };
    let mut draw = |size: usize, number: usize| -> Vec<Vec<f64>> {
        (0..size).map(|_| (0..number).map(|_| random.normal()).collect()).collect()
    };
    let (sensitivities, pressures) = (draw(programs, count), draw(injectors, count));
    let mut rows = Vec::new();
    for (program, sensitivity) in sensitivities.iter().enumerate() {
        for (injector, pressure) in pressures.iter().enumerate() {
            let pressed = |(one, by): (&f64, &f64)| match form.factors {
                Factors::Alike => 0.12 * one,
                _ => 0.12 * one * (1.0 + by),
            };
            let value = 0.5 + sensitivity.iter().zip(pressure).map(pressed).sum::<f64>();
            let full = form.scale.slowdown(value + noise * random.normal());
            rows.extend([0.25, 1.0].map(|intensity| Row {
                program: format!("p{program:02}"),
                injector: format!("i{injector}"),
                intensity: Some(4.0 * intensity),
                slowdown: 1.0 + (full - 1.0) * form.dose.share(intensity),
                ..Row::default()
            }));
        }
    }
    rows
}

const FORM: Form =
    Form { scale: Scale::Logarithm, factors: Factors::Several(2), dose: Dose::HalfAt(0.3), noise: 0.001 };

#[test]
fn a_scale_and_its_inverse_agree() {
    for scale in [Scale::Excess, Scale::Logarithm, Scale::Lost, Scale::Clash] {
        for slowdown in [1.05, 1.3, 2.0, 5.0] {
            assert!((scale.slowdown(scale.of(slowdown)) - slowdown).abs() < 1e-9, "{scale:?}");
        }
        assert!(scale.slowdown(1e6).is_finite() && scale.slowdown(-1e6) > 0.0);
    }
    assert!(Scale::Clash.slowdown(-0.5) < 1.04 && Scale::Clash.slowdown(1.0) > 1.99);
}

#[test]
fn rows_of_several_teams_are_joined_and_their_ceiling_is_known() {
    let row = |team: &str, slowdown| Row {
        team: Some(team.to_owned()),
        program: "p".to_owned(),
        injector: "i".to_owned(),
        slowdown,
        low: Some(slowdown / 1.1),
        high: Some(slowdown * 1.1),
        ..Row::default()
    };
    let table = Table::joined(&[row("a", 1.0), row("b", 2.0), row("c", 1.5)]);
    let [cell] = table.cells.as_slice() else { panic!("one cell") };
    assert_eq!((cell.slowdown, cell.intensity, table.teams), (1.5, 1.0, 3));
    assert!((cell.variance.sqrt() - 1.1_f64.ln() / 1.96).abs() < 1e-12);
    // By the means 1.75, 1.25 and 1.5.
    let ceiling = table.ceiling.unwrap();
    assert!((ceiling.mean - (0.75 + 0.375) / 3.0).abs() < 1e-12, "{ceiling:?}");
    assert_eq!(Table::new(&[row("a", 1.0)]), Err(TableError::TooSmall { programs: 1, columns: 1 }));
    let error = Table::new(&[row("a", f64::NAN)]).unwrap_err().to_string();
    assert!(error.contains("p beside i: the slowdown is NaN: write a number"), "{error}");
}

#[test]
fn a_planted_form_is_recovered() {
    let table = Table::new(&planted(FORM, 16, 6, 0.0)).unwrap();
    let Form { factors, dose, .. } = choose(&table);
    assert_eq!((factors, dose), (FORM.factors, FORM.dose));
    let model = Model::fit(&table, &table.cells, FORM);
    let predicted = |cell: &Cell| {
        model.slowdown(&model.programs[cell.program], &model.columns[cell.column], cell.intensity)
    };
    let errors = Errors::of(table.cells.iter().map(|cell| (cell.slowdown, predicted(cell)))).unwrap();
    assert!(errors.mean < 0.02 && errors.r_squared > 0.99, "{errors:?}");
    let dropped = terms(&table, FORM);
    let error = |name: &str| dropped.iter().find(|term| term.dropped.starts_with(name)).unwrap().errors.mean;
    assert!(error("nothing") < error("all but 1") && error("all but 1") < error("everything"), "{dropped:?}");
    assert!(error("the saturation") > 2.0 * error("nothing"), "{dropped:?}");
}

/// A neighbour costs by its place, the farther one more, and the model needs the place to know it.
#[test]
fn a_distance_is_calibrated() {
    let mut rows = planted(FORM, 8, 4, 0.01);
    let far = rows.clone().into_iter().map(|row| Row {
        place: Some("distant".to_owned()),
        slowdown: row.slowdown * 1.5,
        ..row
    });
    let far: Vec<Row> = far.collect();
    rows.iter_mut().for_each(|row| row.place = Some("close".to_owned()));
    let table = Table::new(&[rows, far].concat()).unwrap();
    assert_eq!(table.columns.len(), 8);
    let dropped = terms(&table, FORM);
    let error = |name: &str| dropped.iter().find(|term| term.dropped == name).unwrap().errors.mean;
    assert!(error("the place") > 1.5 * error("nothing"), "{dropped:?}");
}

/// A program that is an injector, too, is unknown in both roles.
#[test]
fn the_pairs_of_a_program_that_is_left_out_are_not_seen() {
    let names = ["a", "b", "c", "d", "e"];
    let mut rows = Vec::new();
    for (one, program) in names.iter().enumerate() {
        rows.extend(names.iter().enumerate().map(|(other, injector)| Row {
            program: (*program).to_owned(),
            injector: (*injector).to_owned(),
            slowdown: 1.0 + 0.1 * (one + other) as f64,
            ..Row::default()
        }));
    }
    let table = Table::new(&rows).unwrap();
    for fold in question::folds(&table, &table.cells, Question::Program, 10) {
        assert_eq!(fold.train.len(), 16, "four programs beside four");
    }
    assert!(check(&table).answers.iter().all(|answer| answer.errors.mean.is_finite()));
}

#[test]
fn noise_is_not_predicted() {
    let noise = Form { factors: Factors::None, dose: Dose::Proportional, ..FORM };
    let table = Table::new(&planted(noise, 8, 5, 0.1)).unwrap();
    let dropped = terms(&table, Form { factors: Factors::Several(2), noise: 0.016, ..noise });
    let error = |name: &str| dropped.iter().find(|term| term.dropped.starts_with(name)).unwrap().errors.mean;
    assert!(error("everything") < 1.05 * error("nothing"), "{dropped:?}");
}

const PUBLISHED: &str = include_str!("../../../../studies/interference/parsec-ibench-five-teams.csv");

/// Five teams' tables: `studies/interference` has the figures.
#[test]
fn published_slowdowns_are_predicted_within_the_goals() {
    let rows = PUBLISHED.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        Row {
            team: Some(fields[0].to_owned()),
            program: fields[1].to_owned(),
            injector: fields[2].to_owned(),
            slowdown: fields[3].parse().unwrap(),
            ..Row::default()
        }
    });
    let check = check(&Table::new(&rows.collect::<Vec<_>>()).unwrap());
    let of = |left_out, known| {
        let answer = check.answers.iter().find(|one| one.left_out == left_out && one.known == known);
        answer.unwrap().errors.mean
    };
    assert!((check.ceiling.unwrap().mean - 0.092).abs() < 0.0005, "{:?}", check.ceiling);
    assert!(of(Question::Program, Known::Best(2)) <= 0.13, "{check:?}");
    assert!(of(Question::Cell, Known::Others) <= 0.095, "{check:?}");
}
