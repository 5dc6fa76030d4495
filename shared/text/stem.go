package text

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/arabic"
	"github.com/blevesearch/snowballstem/danish"
	"github.com/blevesearch/snowballstem/dutch"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/finnish"
	"github.com/blevesearch/snowballstem/french"
	"github.com/blevesearch/snowballstem/german"
	"github.com/blevesearch/snowballstem/hungarian"
	"github.com/blevesearch/snowballstem/irish"
	"github.com/blevesearch/snowballstem/italian"
	"github.com/blevesearch/snowballstem/norwegian"
	"github.com/blevesearch/snowballstem/portuguese"
	"github.com/blevesearch/snowballstem/romanian"
	"github.com/blevesearch/snowballstem/russian"
	"github.com/blevesearch/snowballstem/spanish"
	"github.com/blevesearch/snowballstem/swedish"
	"github.com/blevesearch/snowballstem/tamil"
	"github.com/blevesearch/snowballstem/turkish"
	"golang.org/x/text/unicode/norm"
)

// language is a language with a stemmer. The function words decide between
// languages of one script; folded, as the index holds them.
type language struct {
	code   string
	script script
	stem   func(*snowballstem.Env) bool
	words  string
}

type script uint8

const (
	latin script = iota
	cyrillic
	arabicScript
	tamilScript
	otherScript
	scripts
)

var languages = [...]language{
	{"en", latin, english.Stem, "the of and to in is that it was for on are with as be at this have from or by not but what all were when we there can an your which their if will each about how up out them then she many some so these would into has more two like him see could no than been its who now did get may"},
	{"de", latin, german.Stem, "der die und das ist nicht ein eine zu von mit den dem des sich auf fur im es als auch an werden aus er hat dass sie nach wird bei einer um am sind noch wie einem uber einen so zum war haben nur oder aber vor zur bis mehr durch man sein wurde wenn kann ich wir ihr"},
	{"fr", latin, french.Stem, "le la les de des du et est un une dans que qui pour pas sur au aux avec ce cette il elle ne se par plus sont nous vous ils mais ou comme tout leur etre fait ses on peut sans ces si ont ete deux meme aussi bien tres"},
	{"es", latin, spanish.Stem, "el la los las de del y que en un una es por con para no se su al lo como mas pero sus le ya o este si porque esta entre cuando muy sin sobre tambien me hasta hay donde quien desde todo nos durante todos uno les ni contra otros son"},
	{"it", latin, italian.Stem, "il lo la gli le di e che un una per non con sono del della dei delle nel nella al alla si da come anche piu ma se ha questo questa tra cui molto essere quando dal dalla ai sul sulla loro suo nei io noi dove perche"},
	{"pt", latin, portuguese.Stem, "o a os as de do da dos das e que em um uma para com nao por se no na nos nas mais como mas ao ele seu sua ou quando muito ja eu tambem so pelo pela ate isso ela entre depois sem mesmo aos seus quem foi sao voce"},
	{"nl", latin, dutch.Stem, "de het een en van in is dat op te zijn met voor niet aan er om ook als bij maar naar uit dan nog wel door wordt kan over deze hebben heeft worden tot dit je hij ze wij geen meer zo onder waar hun wat werd"},
	{"sv", latin, swedish.Stem, "och det att i en jag som pa ar av for med den till inte har de ett om men var sig sa fran kan nar eller vi hade alla under ocksa efter upp dar ska skulle detta mycket hur blev varit"},
	{"no", latin, norwegian.Stem, "og i det er som pa en av til for med at de den ikke har et om fra men var vi seg jeg kan ble ved eller vil hadde skal etter ogsa nar sa bare hva dette mot noe denne hun han mye blir sine"},
	{"da", latin, danish.Stem, "og i at det er en til af som pa med den for de ikke der et har om jeg var men sig fra kan vi ved han eller vil efter blev hvor skal ogsa nar hvad bliver havde nu dette meget noget denne hun mange"},
	{"fi", latin, finnish.Stem, "ja on ei se etta oli olla hyvin mutta kun niin myos tai joka ovat han mita jos kuin sen siita voi ole kanssa nyt vain tama mina sina nama jotka jonka ollut ennen koska seka"},
	{"hu", latin, hungarian.Stem, "a az es hogy nem is egy ez meg csak volt van mar ha de mint vagy akkor ezt azt mert sem lesz nagy olyan minden azonban amely ami most ki el kell lehet majd aki"},
	{"ro", latin, romanian.Stem, "si in de la cu pe nu un o din ce este pentru care sa mai fi se au fost sunt sau ca dar al ale lui ei cele acest aceasta prin dupa fara intre daca cand unde foarte"},
	{"tr", latin, turkish.Stem, "ve bir bu da de icin ile cok ne daha gibi kadar ama olarak sonra en var olan ben sen o biz siz mi ki hem her degil oldu yok ise veya nasil neden simdi sadece"},
	{"ga", latin, irish.Stem, "an na agus ar go le is ni ag do faoi bhi seo sin leis nach ach chun mar ta gur aon sa nios raibh ina bhfuil"},
	{"ru", cyrillic, russian.Stem, ""},
	{"ar", arabicScript, arabic.Stem, ""},
	{"ta", tamilScript, tamil.Stem, ""},
}

// englishIndex is the language by which Latin words are stemmed without evidence.
const englishIndex = 0

// functionWords maps a function word to the set of Latin languages that use it.
var functionWords = sync.OnceValue(func() map[string]uint32 {
	m := map[string]uint32{}
	for i, l := range languages {
		for w := range strings.FieldsSeq(l.words) {
			m[w] |= 1 << i
		}
	}
	return m
})

// stemmable reports whether a stemmer may see the folded word.
func stemmable(folded []byte) bool {
	if len(folded) < 3 || len(folded) > 80 {
		return false
	}
	for i := 0; i < len(folded); {
		c := folded[i]
		if c < utf8.RuneSelf {
			if c < 'a' || c > 'z' {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(folded[i:])
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			return false
		}
		i += n
	}
	return true
}

// scriptOf is the script of a word by its first rune.
func scriptOf(r rune) script {
	switch {
	case r < 0x0370, 0x1E00 <= r && r < 0x1F00:
		return latin
	case 0x0400 <= r && r < 0x0530:
		return cyrillic
	case 0x0600 <= r && r < 0x0700:
		return arabicScript
	case 0x0B80 <= r && r < 0x0C00:
		return tamilScript
	}
	return otherScript
}

// stem answers the folded stem of a word as written, by the language.
func (l *language) stemOf(env *snowballstem.Env, written string) string {
	env.SetCurrent(lowerNFC(written))
	l.stem(env)
	return string(appendLexeme(nil, env.Current()))
}

// lowerNFC is what the stemmers expect: lower case, composed, without the
// connectors of a chain.
func lowerNFC(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || byteTable[c] == bConnector || byteTable[c] == bUpper {
			return norm.NFC.String(strings.ToLower(connectorless.Replace(s)))
		}
	}
	return s
}

var connectorless = strings.NewReplacer("-", "", "'", "", "’", "", "‐", "", "‑", "", "\u00AD", "", "\u200C", "", "\u200D", "")
