package text

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each body is found by each of the queries, and by none of the others.
func TestFinds(t *testing.T) {
	for _, tc := range []struct{ name, body, finds, misses string }{
		{"case and diacritics", "Zürich, Ångström naïve", "zürich; ZURICH; angstrom; Naive; naïve; zu", "urich"},
		{"decomposed", "Cafe\u0301 Zu\u0308rich", "café; cafe; ZÜRICH", "caf́x"},
		{"spellings", "Straße Ærø Łódź Þór", "strasse; STRASSE; aero; lodz; thor", "strase"},
		{"Greek", "Ο Οδυσσέας γύρισε", "οδυσσεας; ΟΔΥΣΣΈΑΣ; γυρισε", "οδυσ σεας x"},
		{"Cyrillic", "Ёлка и май", "елка; ёлка; май", `"маи"`},
		{"Hebrew and Arabic marks", "שָׁלוֹם السَّلَامُ أحمد", "שלום; السلام; احمد", "שלוםם"},
		{"full width", "ＡＰＩ設計 ２０２６", "api; API; ＡＰＩ; 設計; 2026", "設備"},
		{"half-width kana", "ｶﾞｲﾄﾞ と ﾎﾟｽﾀｰ", "ガイド; ﾎﾟｽﾀｰ; ポスター; ガ", "カイト; ホスター"},
		{"decomposed kana", "か\u3099いと\u3099", "がいど", "かいと"},
		{"marks of runs", "人々はコーヒーを飲む", "人々; コーヒー; ーヒ; 飲", "人人"},
		{"single characters", "夜の雨とリンゴ", "雨; 夜; ゴ; 雨と", "雪; 夜雨"},
		{"mixed scripts", "使用API設計v2方案", "api; 設計; v2; 方案; API設計; 使用", "設計方案"},
		{"Chinese words", "系统需要验证用户身份", "用户; 身份; 验证用户; 系", "户用; 用户系统"},
		{"Korean", "한국어 문장입니다", "한국; 국어; 문장; 한", "장한"},
		{"Thai", "สวัสดีชาวโลก", "สวัสดี; โลก; ชาว; ส", "โลกา"},
		{"Lao, Khmer, Burmese", "ສະບາຍດີ សួស្តី မင်္ဂလာပါ", "ສະບາຍ; សួស្តី; မင်္ဂလာ", "ສະດີ"},
		{"Hindi", "हिन्दी भाषा", "हिन्दी; भाषा", "हिन्द भाषा x"},
		{"emoji", "Fire 🔥 and 👩‍💻 and 🇩🇪 ❤️ ✓", "🔥; 👩‍💻; 💻; 🇩🇪; ❤; ❤️; ✓", "🇫🇷; 🚀"},
		{"drawn lines are no words", "─── a ───", "a", "─"},
		{"c++ and c#", "We use C++17, C# and F#, not c", "c++; C++; c#; f#; c; 17", "b++; g#"},
		{"dots", "Node.js v1.2.3 example.com/a_b?c=d www.sub.org. End.Next", "node.js; node; js; v1.2.3; 1.2.3; example.com; a_b; sub.org; end; next", "node.net; 1.2.4; v1.2.3.4"},
		{"hyphens", "An e-mail about long-term state-of-the-art x-rays, part 2026-11-30", "e-mail; email; emails; long-term; longterm; long term; x-ray; state-of-the-art; 2026-11-30; 2026", "email-list; 2026-11-29"},
		{"hyphenated asks for its words too", "a long and boring term", "long-term", "longterm"},
		{"apostrophes", "Don't touch the dog's bone; l’homme d'état", "don't; don’t; dont; dog; dog's; homme; l'homme; état", `"don"; t x`},
		{"code", "snake_case __init__ fooBar HTTPServer parseURLs XMLHttpRequest", "snake_case; snake; case; init; fooBar; foobar; bar; HTTPServer; server; http; urls; XMLHttpRequest; request; snakeCase", "snakebar; foocase"},
		{"mail addresses", "write to Alice.Smith@mail.example.com now", "alice.smith@mail.example.com; mail.example.com; alice; smith; example", "bob@mail.example.com"},
		{"ampersand", "AT&T and R&D a=1&b=2", "AT&T; r&d; b", "T&A"},
		{"numbers", "3.14 1,000 10-20 utf8 4th 0x1F", "3.14; 1,000; 000; 10; utf8; 4th; 0x1f", "3.15"},
		{"markup within words", "un**believ**able and 部**署**方案", "unbelievable; 部署方案", "believ"},
		{"identifiers with joiners", "می\u200Cخواهم co\u00ADoperate", "می\u200Cخواهم; میخواهم; cooperate", "xoperate"},
		{"long words", strings.Repeat("x", 500) + " " + strings.Repeat("日", 300), strings.Repeat("x", 500) + "; " + strings.Repeat("x", 100) + "; 日日", strings.Repeat("x", 499) + "y"},
		{"trade marks", "Foo™ is ½ of m² №5", "foo; m2; no5", "footm"},
		{"prefix of the last word", "deployment checklist", "dep; deploy check; deployment ch", "dep checklist x; d; ch deployment; chec deployment"},
		{"all words", "go deployment checklist", "go deployment; deployment go checklist", "部署 deployment; go 部署"},
		{"excluded words", "go deployment", "go -python; -python go; go --deployment", "go -deployment; -go; go -go; -python"},
		{"phrases", "The quick,\nbrown fox: a *very* quick-witted one in 部署方案 and API設計", `"quick brown"; "BROWN FOX"; "fox a very quick" one; "部署方"; "quick witted"; "witted one"; “quick brown”; 「部署」; "API 設計"; «brown fox»`, `"brown quick"; "uick brown"; "quick brow"; "fox very"`},
		{"phrases within chains", "see v1.2.3 of node.js on 2026-11-30", `"v1.2.3 of node"; "js on 2026"; "on 2026-11"; "of node.js"`, `"js on 11"`},
		{"unclosed quotation", `he said "go deployment`, `"go; go "deployment; said ”`, `"python`},
		{"contractions are exact", "don't panic", `"don't panic"; don't`, `"don panic"`},
	} {
		for q := range strings.SplitSeq(tc.finds, "; ") {
			if !finds(tc.body, q) {
				t.Errorf("%s: %q is not found: %s in %s", tc.name, q, ParseQuery(q).TSQuery, Analyze(Fields{Plain: Extract([]byte(tc.body)).Plain}).Words.String())
			}
		}
		for q := range strings.SplitSeq(tc.misses, "; ") {
			if finds(tc.body, q) {
				t.Errorf("%s: %q is found: %s in %s", tc.name, q, ParseQuery(q).TSQuery, Analyze(Fields{Plain: Extract([]byte(tc.body)).Plain}).Words.String())
			}
		}
	}
}

// A note is found by other forms of its words, whatever its language, and the
// language is told.
func TestLanguages(t *testing.T) {
	for _, tc := range []struct{ lang, body, finds string }{
		{"en", "The children were running to the happiest houses", "run; runs; house; happiest"},
		{"de", "Die Häuser und die Wohnungen sind nicht teuer", "häusern; hausern; wohnung; teure"},
		{"fr", "Les chevaux sont dans la forêt et les enfants jouaient avec", "jouer; enfant; foret; forêts"},
		{"es", "Los niños estaban jugando en las calles de la ciudad", "jugar; calle; niño; nino; ciudades"},
		{"it", "I ragazzi stavano giocando nelle strade della città con gli amici", "giocare; strada; ragazzo; amico"},
		{"pt", "As crianças estavam brincando nas ruas da cidade com os amigos", "brincar; rua; criança; crianca"},
		{"nl", "De kinderen speelden in de straten van het dorp met hun vrienden", "straat; vriend; kinderen; speelde"},
		{"sv", "Barnen lekte på gatorna i staden och de var inte hemma", "gata; gatan; barn; städerna staden"},
		{"da", "Børnene legede på gaderne i byen og de havde ikke mange bøger af den slags", "gade; børn bog; byen"},
		{"no", "Barna lekte i gatene og de ble ikke hjemme, men vi så også noe", "gate; gatene; hjemme"},
		{"fi", "Lapset leikkivät kaduilla ja he olivat iloisia, mutta se ei ole niin", "kadulla; lapset; iloisten"},
		{"hu", "A gyerekek az utcákon játszottak, és nem volt otthon senki, csak a macska", "utca; gyerek; macskák"},
		{"ro", "Copiii se jucau pe străzile orașului și nu erau acasă pentru că este vară", "strazile; orașul; copii"},
		{"tr", "Çocuklar sokaklarda oynuyordu ve bu evler çok güzel ama bir kadar", "sokak; çocuk; evlerde"},
		{"ga", "Bhí na páistí ag súgradh ar an tsráid agus ní raibh siad sa bhaile", "páistí; paisti; súgradh"},
		{"ru", "Дети играли на улицах города и были счастливы", "улица; город; играл; дети"},
		{"ar", "كان الأطفال يلعبون في شوارع المدينة", "شوارع; المدينة; الأطفال"},
		{"ta", "குழந்தைகள் தெருவில் விளையாடினார்கள்", "குழந்தைகள்; தெருவில்"},
		{"zh", "孩子们在城市的街道上玩耍 with a ball", "城市; 街道; 玩耍; balls"},
		{"ja", "子供たちは街の通りで遊んでいた", "子供; 通り; 遊"},
		{"ko", "아이들은 도시의 거리에서 놀고 있었다", "도시; 거리; 아이"},
		{"th", "เด็กๆ กำลังเล่นอยู่บนถนนในเมือง", "ถนน; เมือง"},
		{"el", "Τα παιδιά έπαιζαν στους δρόμους της πόλης", "παιδια; δρόμους; πολησ"},
		{"he", "הילדים שיחקו ברחובות העיר", "הילדים; העיר"},
		{"hi", "बच्चे शहर की सड़कों पर खेल रहे थे", "शहर; सड़कों"},
		{"", "go deployment checklist", "deployments; checklists; deploy"},
		{"", "", ""},
	} {
		plain := Extract([]byte(tc.body)).Plain
		ix := Analyze(Fields{Plain: plain})
		if ix.Lang != tc.lang {
			t.Errorf("%q: language %q, want %q", tc.body, ix.Lang, tc.lang)
		}
		for q := range strings.SplitSeq(tc.finds, "; ") {
			if q != "" && !matches(lexemes(ix.Words.String()), ParseQuery(q)) {
				t.Errorf("%s: %q is not found: %s in %s", tc.lang, q, ParseQuery(q).TSQuery, ix.Words.String())
			}
		}
	}
	for tag, want := range map[string]string{"de": "de", "de-AT": "de", "EN_us": "en", "nb": "no", "zh-Hant": "zh", "xx": "xx", "not a tag": "en"} {
		if got := Analyze(Fields{Plain: "the words of it are English", Lang: tag}).Lang; got != want {
			t.Errorf("tag %q: language %q, want %q", tag, got, want)
		}
	}
}

func TestWeights(t *testing.T) {
	words := lexemes(Analyze(Fields{
		Title: "Tall title", Aliases: []string{"other name"}, Tags: []string{"proj/alpha beta", "#Ünï"}, URI: "wiki://path/of-slugs",
		Headings: []Heading{{1, "Section"}}, Plain: "Section\nbody words of the tall body",
	}).Words.String())
	for word, weight := range map[string]string{"title": "A", "name": "A", "alpha": "B", "#proj": "B", "#proj/alphabeta": "B", "#uni": "B", "slugs": "C", "section": "C", "words": ""} {
		at, ok := words[word]
		if first, _, _ := strings.Cut(at, ","); !ok || strings.Trim(first, "0123456789") != weight {
			t.Errorf("%s stands at %q, want weight %q", word, at, weight)
		}
	}
	if got := words["tall"]; strings.Count(got, ",") != 1 || !strings.Contains(got, "A,") {
		t.Errorf("tall stands at %q, want title and body", got)
	}
}

func TestTagQueries(t *testing.T) {
	words := lexemes(Analyze(Fields{Tags: []string{"项目", "machine learning", "a/B/c", "c++"}, Plain: "text with word and project"}).Words.String())
	for q, want := range map[string]bool{
		"#项目": true, "#machine-learning": true, "#MachineLearning": true, "#mach": true, "#a": true, "#a/b": true, "#a/b/c": true, "#c++": true, "＃项目": true,
		"#word": false, "#b": false, "#mach word": false, "word #a": true, "word -#a": false, "word -#b": true, "#": false, "#1": false, "learning": true,
	} {
		if got := matches(words, ParseQuery(q)); got != want {
			t.Errorf("%s: found %v, want %v (%s)", q, got, want, ParseQuery(q).TSQuery)
		}
	}
}

func TestTerms(t *testing.T) {
	got := Analyze(Fields{Title: "Deployment", Plain: "the Résumé of abc 部署方案 v1.2 snake_case deployment abc1 кириллица " + strings.Repeat("x", 41)}).Terms
	want := []string{"deployment", "resume", "snake", "case", "кириллица"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQueryWords(t *testing.T) {
	q := ParseQuery(`Running 部署方案 "quoted part" -not #tag e-mail`)
	var folded []string
	for _, w := range q.Words {
		folded = append(folded, w.Folded)
	}
	if want := []string{"running", "部署方案", "email"}; !slices.Equal(folded, want) {
		t.Fatalf("words %q, want %q", folded, want)
	}
	if !slices.Contains(q.Words[0].Alternatives, "run") {
		t.Errorf("running has no stem: %q", q.Words[0].Alternatives)
	}
	if !slices.Equal(q.Phrases, []string{"quoted part"}) {
		t.Errorf("phrases %q", q.Phrases)
	}
	if !q.Words[0].IsTerm() || q.Words[1].IsTerm() {
		t.Error("only words of letters may be misspelt")
	}
}

func TestBeginnings(t *testing.T) {
	for q, want := range map[string]string{
		"kub8 dep": `'kub8':* & 'dep':*`, "ku dep": `'ku' & 'dep':*`, `"kub8" dep`: `'kub8' & 'dep':*`, "kub8 -dep": `'kub8':* & !'dep'`,
		"snake_case x": `'snakecase':* & 'x'`, "#tag kub8 c++": `'#tag' & 'kub8':* & 'c++'`, "部署 kub8": `'部署' & 'kub8':*`,
	} {
		if got := ParseQuery(q).Beginnings().TSQuery; got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	q := ParseQuery("deploymnt checklist")
	if finds("deployment checklist", "deploymnt checklist") {
		t.Fatal("the misspelt word is found as it is")
	}
	words := lexemes(Analyze(Fields{Plain: "The deployments of a checklist"}).Words.String())
	more := q.Expand(0, []string{"deployments", "employment"})
	if !matches(words, more) {
		t.Errorf("not found by the expanded query: %s", more.TSQuery)
	}
	if !slices.Contains(more.Words[0].Alternatives, "employment") || slices.Contains(q.Words[0].Alternatives, "employment") {
		t.Errorf("alternatives %q, before %q", more.Words[0].Alternatives, q.Words[0].Alternatives)
	}
	if q.Expand(5, []string{"x"}).TSQuery != q.TSQuery || q.Expand(-1, []string{"x"}).TSQuery != q.TSQuery {
		t.Error("a word that is not there was expanded")
	}
	if s := Snippet("He said so. The employments.", more, 20); !strings.Contains(s, "employments") {
		t.Errorf("snippet %q", s)
	}
}

func TestQueryLimits(t *testing.T) {
	q := ParseQuery(strings.Repeat("word ", 10000))
	if len(q.Words) != MaxQueryWords {
		t.Errorf("%d words", len(q.Words))
	}
	if q := ParseQuery(strings.Repeat("部署", 5000)); strings.Count(q.TSQuery, "&") > maxRun {
		t.Errorf("%d two-character words", strings.Count(q.TSQuery, "&"))
	}
	for _, in := range []string{"", " ", "\x00", "!!!", `""`, `"..."`, "-", "--", "#", "-#", "()&|!:*<->", "\xff\xfe", "—…"} {
		if q := ParseQuery(in); q.TSQuery != "" || len(q.Words) > 0 || len(q.Phrases) > 0 {
			t.Errorf("%q asks for %+v", in, q)
		}
	}
}

// The 1 MiB limit of tsvector: which words a huge note loses.
func TestIndexLimit(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		for _, c := range []int{i % 26, i / 26 % 26, i / 676 % 26, i / 17576} {
			b.WriteByte(byte('a' + c))
		}
		b.WriteString("ing ")
	}
	ix := Analyze(Fields{Title: "The Title", Plain: b.String()})
	total := 0
	for word, at := range lexemes(ix.Words.String()) {
		if total += len(word); at != "" {
			total += 3 + 2*(1+strings.Count(at, ","))
		}
	}
	if total > MaxIndexBytes || total < MaxIndexBytes-100 || !ix.Truncated {
		t.Errorf("the index takes %d bytes of %d, truncated: %v", total, MaxIndexBytes, ix.Truncated)
	}
	var numbers strings.Builder // each once: they fit without positions
	for i := 0; numbers.Len() < 1<<20-10; i++ {
		fmt.Fprintf(&numbers, "%09d ", i*7919)
	}
	if ix := Analyze(Fields{Plain: numbers.String()}); ix.Truncated {
		t.Error("different numbers are truncated")
	}
	if ix := Analyze(Fields{Plain: b.String()[:1<<19]}); ix.Truncated {
		t.Error("half of it is truncated")
	}
	words := lexemes(ix.Words.String())
	for _, want := range []string{"title", "aaaaing", "zzzaing"} {
		if _, ok := words[want]; !ok {
			t.Errorf("%q is lost", want)
		}
	}
	small := Analyze(Fields{Plain: strings.Repeat("the same few words again ", 1<<20/25)})
	if len(small.Words.String()) > 400 {
		t.Errorf("a few words take %d bytes", len(small.Words.String()))
	}
}

func TestDeterministic(t *testing.T) {
	docs, _ := moduleDocs(t)
	for _, doc := range docs[:min(len(docs), 100)] {
		d := Extract(doc)
		f := Fields{Title: "t", Plain: d.Plain, Headings: d.Headings}
		first := Analyze(f)
		Analyze(Fields{Plain: "something else in between, auf Deutsch"})
		if again := Analyze(f); again.Words.String() != first.Words.String() || !slices.Equal(again.Terms, first.Terms) || again.Lang != first.Lang {
			t.Fatal("the same note gives two indexes")
		}
	}
}

// Every stretch of a real note finds it, unquoted and quoted.
func TestNotesAreFound(t *testing.T) {
	docs, _ := moduleDocs(t)
	n := 0
	for _, doc := range docs[:min(len(docs), 400)] {
		d := Extract(doc)
		words := lexemes(Analyze(Fields{Plain: d.Plain}).Words.String())
		all := strings.Fields(d.Plain)
		for i := 0; i+4 <= len(all); i += 1 + len(all)/40 {
			stretch := strings.Join(all[i:i+4], " ")
			if strings.ContainsAny(stretch, "\"“”„«»「」『』") {
				continue
			}
			quoted := ParseQuery(`"` + stretch + `"`)
			if quoted.TSQuery == "" {
				continue
			}
			n++
			if !matches(words, quoted) || !quoted.MatchesPhrases(d.Plain) {
				t.Fatalf("not found by %q: %s", stretch, quoted.TSQuery)
			}
			if s := Snippet(d.Plain, quoted, 200); s == "" || len([]rune(s)) > 200 {
				t.Fatalf("snippet %q", s)
			}
			if strings.Contains(" "+stretch, " -") || strings.Contains(" "+stretch, " #") {
				continue
			}
			if q := ParseQuery(stretch); !matches(words, q) {
				t.Fatalf("not found by unquoted %q: %s", stretch, q.TSQuery)
			}
		}
	}
	if n < 1000 {
		t.Errorf("only %d stretches were tried", n)
	}
}
